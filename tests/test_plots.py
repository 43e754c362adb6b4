"""rlkit.plots: roles, intervals, captions, and the same bytes for the same data."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlkit import plots
from rlkit.plots.pictures import Picture, render
from rlkit.plots.shared import PALETTE, _apart
from rlkit.stats import interval

ROLES = {"grpo": "baseline", "mc_grpo": "method", "mean_plus_one": "control", "rloo": "variant"}

DRAW = """
import sys, numpy as np, pandas as pd
from rlkit import plots
rng = np.random.default_rng(0)
rows = [(arm, seed, step, "accuracy", step / 100 + rng.normal(0, 0.02))
        for arm in ("grpo", "mc_grpo", "mean_plus_one") for seed in range(3) for step in range(0, 101, 10)]
frame = pd.DataFrame(rows, columns=["arm", "seed", "step", "metric", "value"])
roles = {"grpo": "baseline", "mc_grpo": "method", "mean_plus_one": "control"}
out = sys.argv[1]
plots.save(plots.curves(frame, "accuracy", roles=roles, title="Is the median better?"), out + "/curves")
plots.save(plots.points({"a": rng.normal(size=5), "b": rng.normal(size=5)}, xlabel="gain (share)"), out + "/points")
plots.save(plots.heat(pd.DataFrame(rng.normal(size=(2, 3))), centre=0, value="gain"), out + "/heat")
plots.save(plots.histogram({"a": rng.normal(size=99), "b": rng.normal(size=99)}), out + "/histogram")
"""


def _frame(seeds: int = 3, arms: tuple[str, ...] = ("grpo", "mc_grpo")) -> pd.DataFrame:
    rows = []
    for number, arm in enumerate(arms):
        for seed in range(seeds):
            for step in (0, 10, 20):
                rows.append((arm, seed, step, "accuracy", 0.1 * number + 0.01 * step + 0.1 * seed))
                if step:
                    rows.append((arm, seed, step, "generated_tokens", 1000 * step * (1 + number)))
    return pd.DataFrame(rows, columns=["arm", "seed", "step", "metric", "value"])


def _text(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.texts)


def _line(figure: Figure, name: str) -> Line2D:
    return next(line for line in figure.axes[0].lines if line.get_label() == name)


def test_same_data_gives_the_same_bytes_in_two_processes(tmp_path: Path) -> None:
    hashes = []
    for folder, seed in (("one", "1"), ("two", "2")):
        (tmp_path / folder).mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", DRAW, str(tmp_path / folder)], check=True, env=environment)
        files = sorted((tmp_path / folder).iterdir())
        hashes.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    assert len(hashes[0]) == 8
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.curves(_frame(), "accuracy", roles=ROLES, title="t"),
        lambda: plots.heat(pd.DataFrame([[0.5, 1], [2, 3]]), title="t", value="gain", note="n"),
    ],
)
def test_showing_a_figure_first_does_not_change_the_file(draw: Callable[[], Picture]) -> None:
    shown, unseen = draw(), draw()
    assert shown._repr_png_().startswith(b"\x89PNG")
    for kind in ("svg", "png"):
        assert render(shown, kind) == render(unseen, kind)


def test_style_does_not_depend_on_the_users_matplotlibrc() -> None:
    import matplotlib

    plain = render(plots.curves(_frame(), "accuracy"), "svg")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "lines.linewidth": 9, "axes.grid": False}):
        assert render(plots.curves(_frame(), "accuracy"), "svg") == plain


def test_files_hold_no_date_no_version_and_no_font_reference(tmp_path: Path) -> None:
    import matplotlib

    svg, png = plots.save(plots.curves(_frame(), "accuracy", title="A finding"), tmp_path / "new" / "accuracy")
    text = svg.read_text(encoding="utf-8")
    assert "<dc:date>" not in text
    assert f"v{matplotlib.__version__}" not in text
    assert "<text" not in text, "letters are outlines: no viewer needs the font"
    assert "A finding" in text, "a title for screen readers"
    assert b"Software" not in png.read_bytes()
    assert {path.name for path in svg.parent.iterdir()} == {"accuracy.svg", "accuracy.png"}


def test_colours_say_the_role_and_come_from_seaborns_colour_blind_palette() -> None:
    looks = plots.look({"grpo": "baseline", "variant": "variant", "mc_grpo": "method", "mean_plus_one": "control"})
    assert looks["mc_grpo"]["color"] == PALETTE[0], "the method is blue wherever it stands in the list"
    assert looks["variant"]["color"] == PALETTE[1]
    assert (looks["grpo"]["linestyle"], looks["mean_plus_one"]["linestyle"]) == ("-", "--")
    for arm in ("grpo", "mean_plus_one"):
        colour = looks[arm]["color"]
        assert colour[1:3] == colour[3:5] == colour[5:7], "grey"
    assert len({look["marker"] for look in looks.values()}) == 4, "colour is not the only difference"
    many = plots.look({**dict.fromkeys("abc", "baseline"), **{f"v{n}": "variant" for n in range(16)}})
    seen = [(look["color"], look["linestyle"], look["marker"]) for look in many.values()]
    assert len(set(seen)) == len(seen), "no two arms look the same"
    seaborn = pytest.importorskip("seaborn")
    assert set(PALETTE) <= set(seaborn.color_palette("colorblind").as_hex())


def test_curve_is_the_mean_over_seeds_and_the_band_its_interval() -> None:
    figure = plots.curves(_frame(), "accuracy", roles=ROLES)
    assert _line(figure, "mc_grpo").get_xydata() == pytest.approx(np.array([(0, 0.2), (10, 0.3), (20, 0.4)]))
    band = figure.axes[0].collections[1].get_paths()[0].vertices[:, 1]
    _, low, high = interval([0.3, 0.4, 0.5])
    assert (band.max(), band[np.isclose(band, low, atol=1e-6)].size) == (pytest.approx(high, abs=1e-5), 1)


def test_cost_axis_reads_each_runs_own_cost_and_starts_at_zero() -> None:
    figure = plots.curves(_frame(), "accuracy", x="generated_tokens", roles=ROLES)
    assert _line(figure, "grpo").get_xdata() == pytest.approx([0, 10_000, 20_000])
    assert _line(figure, "mc_grpo").get_xdata() == pytest.approx([0, 20_000, 40_000])
    assert figure.axes[0].get_xlabel() == "generated tokens"


def test_unknown_metric_names_near_ones() -> None:
    with pytest.raises(ValueError, match="'accuracy'"):
        plots.curves(_frame(), "acuracy")


def test_caption_says_how_many_seeds() -> None:
    assert "over 3 seeds" in _text(plots.curves(_frame(), "accuracy"))
    assert "1 seed, no interval" in _text(plots.curves(_frame(seeds=1), "accuracy"))
    uneven = pd.concat([_frame(2, ("grpo",)), _frame(5, ("mc_grpo",))])
    assert "over 2 to 5 seeds" in _text(plots.curves(uneven, "accuracy"))


def test_recorded_arms_are_labelled(recwarn: pytest.WarningsRecorder) -> None:
    frame = _frame(5)
    frame["source"] = np.where(frame["arm"] == "mc_grpo", "recorded", "run")
    labels = [line.get_label() for line in plots.curves(frame, "accuracy").axes[0].lines]
    assert "mc_grpo (recorded, 5 seeds)" in labels
    assert "grpo" in labels
    assert not recwarn.list


def test_missing_values_are_left_out_of_the_mean() -> None:
    frame = _frame()
    frame.loc[(frame["seed"] == 2) & (frame["step"] == 20), "value"] = np.nan
    assert _line(plots.curves(frame, "accuracy"), "grpo").get_ydata()[-1] == pytest.approx(0.25)


def test_labels_at_line_ends_never_overlap_and_keep_their_order() -> None:
    placed = _apart({"a": (1, 0.5), "b": (1, 0.5), "c": (1, 0.52), "d": (1, 0.9)}, dict.fromkeys("abcd", 0.1))
    heights = [placed[name] for name in "abcd"]
    assert heights == sorted(heights)
    assert min(np.diff(heights)) >= 0.1 - 1e-3


def test_many_arms_get_a_legend() -> None:
    arms = tuple(f"a_rather_long_arm_name_{number}" for number in range(9))
    figure = plots.curves(_frame(arms=arms), "accuracy")
    assert len(figure.legends[0].get_texts()) == 9
    render(figure, "png")


def test_points_have_a_zero_line_and_an_interval() -> None:
    figure = plots.points({"exact": [0.1, 0.2, 0.3]}, xlabel="gain (share)")
    lines = figure.axes[0].lines
    assert list(lines[0].get_xdata()) == [0, 0]
    assert sorted(lines[1].get_xdata()) == pytest.approx([0.1, 0.2, 0.3])
    assert lines[2].get_xdata() == pytest.approx(interval([0.1, 0.2, 0.3])[1:], abs=1e-5)


def test_heat_writes_every_number_and_leaves_gaps_empty() -> None:
    figure = plots.heat(pd.DataFrame([[0.5, -0.001], [np.nan, -0.5]]), centre=0)
    assert [text.get_text() for text in figure.axes[0].texts] == ["+0.50", "+0.00", "", "-0.50"]


def test_histogram_shows_shares() -> None:
    figure = plots.histogram({"a": [0, 0, 0, 1]}, bins=2)
    assert list(figure.axes[0].patches[0].get_data().values) == [0.75, 0.25]


@pytest.mark.parametrize(
    ("verdict", "title"),
    [
        ("supported", "It wins"),
        ("refuted", "It loses"),
        ("inconclusive", "Does it win? These seeds do not decide it"),
        ("preliminary supported", "Does it win?"),
        ("preliminary refuted", "Does it win?"),
    ],
)
def test_title_states_the_finding_and_asks_under_five_seeds(verdict: str, title: str) -> None:
    words = {"supported": "It wins", "refuted": "It loses", "question": "Does it win?"}
    assert plots.title_from_verdict(verdict, **words) == title


def test_panels_share_a_figure() -> None:
    figure, (top, bottom) = plots.panels(2, height=5)
    plots.curves(_frame(), "accuracy", ax=top, title="up")
    plots.points({"a": [1, 2]}, ax=bottom, title="down")
    plots.finish(figure, "Both", plots.caption(_frame()))
    assert (top.get_title(loc="left"), bottom.get_title(loc="left")) == ("up", "down")
    assert figure.get_suptitle() == "Both"
    render(figure, "svg")


def test_text_is_readable_at_400_pixels() -> None:
    figure = plots.curves(_frame(), "accuracy", roles=ROLES, title="A finding")
    figure.draw_without_rendering()
    panel = figure.axes[0]
    texts = [*panel.texts, *figure.texts, panel.xaxis.label, panel.yaxis.label, *panel.get_xticklabels()]
    smallest = min(text.get_fontsize() for text in texts)
    assert smallest / 72 * 400 / figure.get_size_inches()[0] >= 10, "pixels at a width of 400"

"""`rlkit pool FILES`: the runs of a class as one sample. Each student trains one seed; together they have an interval.

A study writes `runs.csv` beside its figures (not to `figures/`, which holds committed evidence); the frame of anybody's
own `rlkit.run`, saved with `to_csv`, will do too. Needed are the columns arm, seed, step, metric, value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlkit.method import near
from rlkit.runs.arms import ROLES, Arm
from rlkit.runs.table import COLUMNS, Runs
from rlkit.show import csv_cell
from rlkit.stats import interval, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "runs.csv"
NEEDED = ("arm", "seed", "step", "metric", "value")
FEWEST = 3
"""Seeds from which on the narrowing is drawn: the interval of two is so wide that it would hide the rest."""
SAME = ("notebook", "preset")
"""Columns that must hold one value in all files, where they are there."""


def export(frame: pd.DataFrame, notebook: str, preset: str, roles: Mapping[str, str]) -> str:
    """The runs of a notebook as the CSV that students hand in."""
    table = frame[list(NEEDED)].assign(notebook=notebook, preset=preset, role=frame["arm"].map(dict(roles)))
    return str(table[[*SAME, "role", *NEEDED]].to_csv(index=False, lineterminator="\n"))


def read(places: Sequence[Path], metric: str = "accuracy", baseline: str | None = None) -> tuple[Runs, list[str]]:
    """Read files as one table of runs, and what a reader must know about them.

    A seed of an arm counts once, however many files have it: two students with one seed are one sample.

    Args:
        places: CSV files, or folders in which every `runs.csv` is taken.
        metric: what is to be compared: arms without it are left out.
        baseline: the arm that others are compared with; else the files' roles say so.

    Raises:
        ValueError: no files, or files that are no runs or do not belong together; the message names them.
    """
    frames = {path: _read(path) for path in _files(places)}
    for name in SAME:
        _one(name, {path: set(frame[name]) for path, frame in frames.items() if name in frame})
    kept, notes = _without_doubles(frames)
    frame = pd.concat(kept, ignore_index=True)
    if without := sorted(set(frame["arm"]) - set(frame["arm"][frame["metric"] == metric])):
        if len(without) == frame["arm"].nunique():
            raise ValueError(f"no run logged {metric!r}. {near(metric, list(frame['metric'].unique()))}")
        notes.append(f"left out, because {metric} was not logged: {', '.join(without)}")
        frame = frame[~frame["arm"].isin(without)]
    _same_length(frame)
    roles = dict(zip(frame["arm"], frame["role"], strict=True))
    if baseline is not None and baseline not in roles:
        raise ValueError(f"there is no arm {baseline!r} in these files. {near(baseline, list(roles))}")
    arms = [Arm(label, label, role=_role(label, role, baseline)) for label, role in roles.items()]
    return Runs(arms, frame[COLUMNS], pd.DataFrame(columns=COLUMNS)), notes


def _role(label: str, role: str, baseline: str | None) -> str:
    if baseline is None:
        return role
    return "baseline" if label == baseline else "variant" if role == "baseline" else role


def _files(places: Sequence[Path]) -> list[Path]:
    found = [sorted(place.rglob(NAME)) if place.is_dir() else [place] for place in places]
    if not any(found):
        raise ValueError(f"there is no {NAME} in {', '.join(map(str, places))}")
    return list(dict.fromkeys(path for part in found for path in part))


def _read(path: Path) -> pd.DataFrame:
    """One file, checked."""
    try:
        frame = pd.read_csv(path, dtype={"arm": str, "metric": str}, converters={"value": float})
        frame = frame.astype({"seed": int, "step": int})
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is no table of runs: {error}") from None
    if missing := [name for name in NEEDED if name not in frame]:
        raise ValueError(f"{path} is no table of runs: it has no column {', '.join(map(repr, missing))}")
    if frame.empty:
        raise ValueError(f"{path} holds no runs")
    roles = frame["role"].where(frame["role"].isin(ROLES), "variant") if "role" in frame else "variant"
    return frame.assign(role=roles, source="run")


def _one(name: str, found: Mapping[Path, set[Any]]) -> None:
    values = {value: path for path, given in found.items() for value in given}
    if len(values) > 1:
        said = ", ".join(f"{value} ({path})" for value, path in values.items())
        raise ValueError(f"runs of more than one {name} cannot be pooled: {said}")


def _without_doubles(frames: Mapping[Path, pd.DataFrame]) -> tuple[list[pd.DataFrame], list[str]]:
    """The frames without the runs that an earlier file has, and a note about each such file."""
    seen: dict[tuple[str, int], Path] = {}
    kept, notes = [], []
    for path, frame in frames.items():
        runs = pd.MultiIndex.from_frame(frame[["arm", "seed"]])
        double = runs.isin(list(seen)) if seen else [False] * len(frame)
        if any(double):
            seeds = sorted(set(frame["seed"][double]))
            others = ", ".join(sorted({str(seen[key]) for key in set(runs[double])}))
            notes.append(f"{path}: seed {', '.join(map(str, seeds))} is in {others} already and counts once")
        kept.append(frame[[not one for one in double]])
        seen |= dict.fromkeys(set(runs), path) | seen
    return kept, notes


def _same_length(frame: pd.DataFrame) -> None:
    """Runs of one arm have to end at one step: others were trained with other settings."""
    ends = frame.groupby(["arm", "seed"])["step"].max()
    for arm, own in ends.groupby("arm"):
        if own.nunique() > 1:
            odd = own[own != own.mode()[0]].index.get_level_values("seed").tolist()
            raise ValueError(
                f"runs of arm {arm!r} end at different steps ({', '.join(map(str, sorted(set(own))))}; look at seed "
                f"{', '.join(map(str, odd[:5]))}): pool runs with the same settings"
            )


def pooled(runs: Runs, metric: str, at: str | int) -> tuple[pd.DataFrame, dict[str, pd.Series]]:
    """Mean and 95 % interval of each arm and of its difference to the baseline; and those differences by seed.

    Raises:
        ValueError: no step `at`, or an arm without a seed that the baseline has.
    """
    table = summary(runs.value(metric, at)).rename(columns={"n": "seeds"})
    values = {
        f"{label} minus {runs.baseline}": runs.difference(metric, label, runs.baseline, at)
        for label in runs.labels
        if label != runs.baseline
    }
    if not values:
        return table, {runs.baseline: runs.value(metric, at).T[runs.baseline].dropna()}
    judged = runs.verdict(metric, at).drop(columns=metric)
    return table.join(judged.rename(columns={"lo": "difference lo", "hi": "difference hi", "seeds": "pairs"})), values


def write(folder: Path, runs: Runs, metric: str, table: pd.DataFrame, values: Mapping[str, pd.Series]) -> list[Path]:
    """Write numbers and figures to a folder; what was written."""
    from rlkit import plots
    from rlkit.files import write_atomic

    single = len(runs.labels) == 1
    file, figure = folder / "pool.csv", folder / "pool"
    numbers = {name: found.tolist() for name, found in values.items()}
    write_atomic(file, table.rename(index=csv_cell).to_csv(lineterminator="\n"))
    seeds = max(len(found) for found in values.values())
    what = f"{metric} of {seeds} seeds" if single else f"{metric}, paired differences of {seeds} seeds"
    label = f"{metric}" if single else f"difference in {metric}"
    pictures = {figure: plots.points(numbers, zero=None if single else 0.0, xlabel=label, title=what.capitalize())}
    if seeds > FEWEST:
        pictures[folder / "narrowing"] = narrowing(values, label)
    for place, picture in pictures.items():
        plots.save(picture, place)
    return [file, *(Path(f"{place}{kind}") for place in pictures for kind in (".svg", ".png"))]


def narrowing(values: Mapping[str, pd.Series], label: str) -> Figure:
    """How the 95 % interval closes while seeds are added: what a class sees that one student does not."""
    from rlkit import plots

    looks = plots.look(dict.fromkeys(values, "variant"))
    figure, axes = plots.panels(len(values), 1, height=0.8 + 2.2 * len(values))
    for panel, (name, found) in zip(axes, values.items(), strict=True):
        counts = range(FEWEST, len(found) + 1)
        ends = [interval(found.iloc[:n]) for n in counts]
        with plots.style():
            colour = looks[name]["color"]
            panel.plot(counts, [end.mean for end in ends], color=colour)
            panel.fill_between(counts, [e.lo for e in ends], [e.hi for e in ends], color=colour, alpha=0.18)
            panel.axhline(0.0, color="#222222", linewidth=0.9, linestyle=":")
            panel.set(xlabel="number of seeds", ylabel=label)
            panel.set_title(name)
    return plots.finish(figure, "What the first n seeds say", "Mean and 95 % interval, in the order of the files.")

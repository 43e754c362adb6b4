"""A class's runs as one sample: numbers by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rlkit.course.pool import export, pooled, read, write
from rlkit.stats import interval

ROLES = {"base": "baseline", "new": "method"}


def student(folder: Path, seed: int, new: float, *, base: float = 0.5, last: int = 10, preset: str = "tiny") -> Path:
    """The runs.csv of one student: two arms, accuracy at the first and at the last step."""
    rows = [
        {"arm": arm, "seed": seed, "step": step, "metric": "accuracy", "value": value if step else 0.1}
        for arm, value in (("base", base), ("new", new))
        for step in (0, last)
    ]
    path = folder / f"s{seed}" / "runs.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(export(pd.DataFrame(rows), "tour", preset, ROLES))
    return path


def test_differences_are_paired_and_pooled_by_hand(tmp_path: Path) -> None:
    """Last accuracies 0.6, 0.7, 0.8 minus 0.5 each: 0.1, 0.2, 0.3, with the t interval of three values."""
    for seed, new in ((3, 0.6), (17, 0.7), (40, 0.8)):
        student(tmp_path, seed, new)
    runs, notes = read([tmp_path])
    table, values = pooled(runs, "accuracy", "last")
    assert notes == []
    assert values["new minus base"].to_dict() == pytest.approx({3: 0.1, 17: 0.2, 40: 0.3})
    mean, lo, hi = interval([0.1, 0.2, 0.3])
    assert table.loc["new", ["minus base", "difference lo", "difference hi"]].tolist() == pytest.approx([mean, lo, hi])
    assert table.loc["new", "mean"] == pytest.approx(0.7)
    assert table.loc["new", "pairs"] == 3
    assert "preliminary" in table.loc["new", "verdict"]


def test_the_area_under_the_curve_is_an_end_point_too(tmp_path: Path) -> None:
    """From 0.1 to 0.6 and to 0.5 in a line: the mean heights are 0.35 and 0.3."""
    runs, _ = read([student(tmp_path, 1, 0.6), student(tmp_path, 2, 0.6)])
    _, values = pooled(runs, "accuracy", "auc")
    assert values["new minus base"].tolist() == pytest.approx([0.05, 0.05])


def test_a_seed_that_two_files_have_counts_once_and_is_said(tmp_path: Path) -> None:
    first, other = student(tmp_path / "a", 1, 0.6), student(tmp_path / "b", 1, 0.9)
    runs, notes = read([first, other, first, student(tmp_path, 2, 0.6)])
    _, values = pooled(runs, "accuracy", "last")
    assert values["new minus base"].to_dict() == pytest.approx({1: 0.1, 2: 0.1})
    assert len(notes) == 1 and str(other) in notes[0] and "seed 1" in notes[0]


def test_another_baseline_can_be_named(tmp_path: Path) -> None:
    student(tmp_path, 1, 0.6)
    runs, _ = read([tmp_path], baseline="new")
    assert runs.baseline == "new"
    with pytest.raises(ValueError, match="Did you mean 'base'"):
        read([tmp_path], baseline="bas")


def test_a_frame_of_ones_own_runs_will_do(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    frame = pd.DataFrame({"arm": "grpo", "seed": 1, "step": [0, 5], "metric": "reward", "value": [0.0, 1.0]})
    frame.assign(source="run").to_csv(path)
    runs, _ = read([path], "reward")
    table, values = pooled(runs, "reward", "last")
    assert table.loc["grpo", ["mean", "seeds"]].tolist() == [1.0, 1]
    assert list(values) == ["grpo"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no table of runs"),
        ("a,b\n1,2\n", "no table of runs"),
        ("arm,seed,step,metric\nx,1,0,accuracy\n", "column 'value'"),
        ("arm,seed,step,metric,value\nx,one,0,accuracy,1\n", "no table of runs"),
        ("arm,seed,step,metric,value\n", "holds no runs"),
    ],
    ids=["empty", "other", "column", "seed", "rows"],
)
def test_a_file_that_is_no_table_of_runs_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read([path])
    assert "odd.csv" in str(caught.value)


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    mine = student(tmp_path, 1, 0.6)
    with pytest.raises(ValueError, match=r"more than one preset .*tiny .*smoke"):
        read([mine, student(tmp_path, 2, 0.6, preset="smoke")])
    with pytest.raises(ValueError, match=r"different steps \(10, 20; look at seed 3"):
        read([mine, student(tmp_path, 2, 0.6), student(tmp_path, 3, 0.6, last=20)])
    (tmp_path / "nobody").mkdir()
    with pytest.raises(ValueError, match=r"no runs\.csv"):
        read([tmp_path / "nobody"])


def test_an_arm_without_the_metric_is_left_out_and_said(tmp_path: Path) -> None:
    path = student(tmp_path, 1, 0.6)
    path.write_text(path.read_text() + "tour,tiny,variant,choice,1,0,reward,0.5\n")
    runs, notes = read([path])
    assert runs.labels == ["base", "new"]
    assert notes == ["left out, because accuracy was not logged: choice"]
    with pytest.raises(ValueError, match="Did you mean 'accuracy'"):
        read([path], "acuracy")


def test_numbers_and_figures_are_written(tmp_path: Path) -> None:
    for seed in range(6):
        student(tmp_path, seed, 0.6 + seed / 100)
    runs, _ = read([tmp_path])
    table, values = pooled(runs, "accuracy", "last")
    files = write(tmp_path / "out", runs, "accuracy", table, values)
    assert {path.name for path in files} == {"pool.csv", "pool.svg", "pool.png", "narrowing.svg", "narrowing.png"}
    assert all(path.stat().st_size for path in files)
    assert pd.read_csv(files[0], index_col=0).loc["new", "verdict"] == "better"

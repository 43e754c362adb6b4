"""The teacher's commands, through the command line."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.course.pool import export
from tests.course.conftest import Write


def test_pool_prints_and_writes(tmp_path: Path) -> None:
    for seed in range(5):
        rows = [(arm, seed, step, "accuracy", step * up) for arm, up in (("a", 0.1), ("b", 0.2)) for step in (0, 1)]
        frame = pd.DataFrame(rows, columns=["arm", "seed", "step", "metric", "value"])
        (tmp_path / f"{seed}.csv").write_text(export(frame, "tour", "tiny", {"a": "baseline", "b": "method"}))
    files = sorted(map(str, tmp_path.glob("*.csv")))
    shown = CliRunner().invoke(app, ["pool", *files, "--at", "1", "--out", str(tmp_path / "out")])
    assert shown.exit_code == 0, shown.output
    assert "better" in shown.stdout and "0.1" in shown.stdout
    assert (tmp_path / "out" / "pool.svg").is_file()
    assert CliRunner().invoke(app, ["pool", *files, "--baseline", "c"]).exit_code == 1


def test_an_empty_folder_is_no_class(tmp_path: Path) -> None:
    for command in ("grade", "pool"):
        shown = CliRunner().invoke(app, [command, str(tmp_path)])
        assert shown.exit_code == 1 and "there is no" in shown.stderr


@pytest.mark.slow
def test_grade_writes_a_table(write: Write, right: list[str], tmp_path: Path) -> None:
    write(*right[:-1])
    shown = CliRunner().invoke(app, ["grade", str(tmp_path), "--seconds", "30"])
    assert shown.exit_code == 0, shown.output
    assert "anna: 2 of 3  missing" in shown.stdout
    with (tmp_path / "grades.csv").open(encoding="utf-8") as file:
        rows = {row["exercise"]: row for row in csv.DictReader(file)}
    assert rows["silent"]["student"] == "anna" and rows["silent"]["result"] == "passed"
    assert rows["repaired"]["result"] == "missing"


@pytest.mark.slow
def test_course_of_one_notebook(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["course", "tour", "--out", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "0 of 3 checks pass" in shown.stdout and "3 of 3 checks pass" in shown.stdout
    assert (tmp_path / "student" / "00_tour.ipynb").is_file()

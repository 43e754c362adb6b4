from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from rlkit.course.checking import Result
from rlkit.course.grading import COLUMNS, Row, Submission, grade, submissions, table, totals
from tests.course.conftest import Write


def test_students_are_named_by_folder_or_file(tmp_path: Path) -> None:
    names = {
        "anna/00_tour.ipynb": "anna",
        "ben/deep/02_median_baseline.ipynb": "ben",
        "carla_02_median_baseline.ipynb": "carla",
        "median_baseline-dora.ipynb": "dora",
        "00_tour.ipynb": "00_tour",
    }
    for name in (*names, "anna/.ipynb_checkpoints/00_tour-checkpoint.ipynb"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    found = submissions(tmp_path)
    assert {submission.file: submission.student for submission in found} == names


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no notebook in"):
        submissions(tmp_path)


def test_the_table_is_csv_that_a_spreadsheet_does_not_execute() -> None:
    submission = Submission("=cmd()", Path("x"), "x.ipynb")
    text = table([Row(submission, Result("tour.silent", "failed", 'got "a",\nwanted b', 1.5))])
    head, row = csv.reader(io.StringIO(text))
    assert tuple(head) == COLUMNS
    assert row == ["'=cmd()", "tour", "silent", "failed", 'got "a", wanted b', "1.5", "x.ipynb"]


def test_totals_count_by_student() -> None:
    def row(student: str, result: str) -> Row:
        return Row(Submission(student, Path("x"), "x"), Result("tour.silent", result))

    rows = [row("anna", "passed"), row("anna", "failed"), row("ben", "time limit")]
    assert list(totals(rows)) == ["anna: 1 of 2", "ben: 0 of 1  time limit"]


@pytest.mark.slow
def test_a_broken_notebook_is_a_row_and_the_others_are_graded(write: Write, right: list[str], tmp_path: Path) -> None:
    write(*right)
    (tmp_path / "ben").mkdir()
    (tmp_path / "ben" / "00_tour.ipynb").write_text("{")
    rows = grade(tmp_path)
    found = {(row.submission.student, row.result.result) for row in rows}
    assert found == {("anna", "passed"), ("ben", "unreadable")}
    assert len(rows) == 4

"""`rlkit grade FOLDER`: who passed which check, one row for each exercise of each notebook in a folder."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rlkit.course.checking import Limits, Result, check_notebook
from rlkit.exercises import names
from rlkit.show import csv_cell

COLUMNS = ("student", "notebook", "exercise", "result", "message", "seconds", "file")


@dataclass(frozen=True)
class Submission:
    """One notebook that was handed in."""

    student: str
    """The first folder below the one that is graded; else what the file's name holds beside the notebook's."""
    path: Path
    file: str
    """Its name, as seen from the folder."""


@dataclass(frozen=True)
class Row:
    """One exercise of one submission."""

    submission: Submission
    result: Result

    @property
    def cells(self) -> tuple[str, ...]:
        """Its values in the order of `COLUMNS`."""
        slug, _, exercise = self.result.exercise.partition(".")
        said = (self.result.result, self.result.message, f"{self.result.seconds:g}")
        return self.submission.student, slug, exercise, *said, self.submission.file


def submissions(folder: Path) -> list[Submission]:
    """The notebooks of a folder and the folders in it.

    Raises:
        ValueError: there is none.
    """
    files = sorted(path for path in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
    if not files:
        raise ValueError(f"there is no notebook in {folder}")
    return [Submission(_student(path.relative_to(folder)), path, str(path.relative_to(folder))) for path in files]


def _student(path: Path) -> str:
    if len(path.parts) > 1:
        return path.parts[0]
    slugs = "|".join(sorted({re.escape(name.partition(".")[0]) for name in names()}, key=len, reverse=True))
    rest = re.sub(rf"(\d\d_)?({slugs})", "", path.stem).strip(" _-")
    return rest or path.stem


def grade(
    folder: Path, limits: Limits | None = None, jobs: int = 1, said: Callable[[str], None] = lambda text: None
) -> list[Row]:
    """Check every notebook of a folder; one that hangs or is broken is a row that says so.

    Args:
        folder: with a folder for each student, or with files such as `anna_02_median_baseline.ipynb`.
        limits: for each exercise.
        jobs: notebooks at a time.
        said: is told about each notebook that is done.

    Raises:
        ValueError: no notebook in the folder.
    """
    found = submissions(folder)

    def rows(submission: Submission) -> list[Row]:
        results = _results(submission, limits)
        passed = sum(result.result == "passed" for result in results)
        said(f"{submission.file}: {passed} of {len(results)} passed")
        return [Row(submission, result) for result in results]

    with ThreadPoolExecutor(jobs) as pool:
        return [row for part in pool.map(rows, found) for row in part]


def _results(submission: Submission, limits: Limits | None) -> list[Result]:
    try:
        return check_notebook(submission.path, limits)
    except Exception as error:  # the others are graded whatever one notebook does
        return [Result("", "unreadable", f"{type(error).__name__}: {str(error)[:200]}")]


def table(rows: list[Row]) -> str:
    """The rows as CSV, with a head."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([csv_cell(cell) for cell in row.cells] for row in rows)
    return text.getvalue()


def totals(rows: list[Row]) -> Iterator[str]:
    """One line for each student: how many checks passed."""
    students = dict.fromkeys(row.submission.student for row in rows)
    for student in students:
        own = [row.result for row in rows if row.submission.student == student]
        odd = sorted({result.result for result in own} - {"passed", "failed"})
        yield f"{student}: {sum(r.result == 'passed' for r in own)} of {len(own)}{'  ' + ', '.join(odd) if odd else ''}"

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from rlkit import notebooks
from rlkit.course.checking import Result
from rlkit.course.slices import slices
from rlkit.course.student import Made, blank, course, make

SOLVED = """def f(x):
    '''What it does.'''
    ### BEGIN SOLUTION
    y = x + 1
    return y
    ### END SOLUTION


rlkit.check("a.f", f)"""
BLANK = """def f(x):
    '''What it does.'''
    # YOUR CODE HERE
    raise NotImplementedError()


rlkit.check("a.f", f)"""


def test_a_stub_stands_where_the_solution_was() -> None:
    """The same text as nbgrader 0.9 writes."""
    assert blank(SOLVED) == BLANK
    assert blank(BLANK) == BLANK


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("### BEGIN SOLUTION\nx = 1", "does not end"),
        ("### END SOLUTION", "did not begin"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION", "inside another"),
    ],
    ids=["open", "closed", "nested"],
)
def test_marks_that_do_not_pair_are_refused(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        blank(source)


def test_student_notebooks_hold_no_solution_and_solution_notebooks_are_the_same(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert {kind for _, kind, _ in made} == {"student", "solution"}
    for slug, kind, path in made:
        written, source = nbformat.read(path, as_version=4), notebooks.read(slug)
        assert path.name == notebooks.available()[slug].name
        text = "\n".join(cell.source for cell in written.cells)
        if kind == "solution":
            assert written == source
        else:
            assert "SOLUTION" not in text
            assert text.count("raise NotImplementedError()") >= len(slices(source)) >= 3


def test_a_solution_that_fails_and_a_blank_that_passes_are_problems() -> None:
    right, wrong = Result("a.f", "passed"), Result("a.f", "failed", "no")
    path = Path("x.ipynb")
    assert Made("a", "solution", path, (right,)).problems == []
    assert Made("a", "student", path, (wrong,)).problems == []
    assert len(Made("a", "solution", path, (wrong,)).problems) == 1
    assert len(Made("a", "student", path, (right,)).problems) == 1
    for odd in ("missing", "time limit", "died", "unreadable"):
        assert len(Made("a", "student", path, (Result("a.f", odd),)).problems) == 1


@pytest.mark.slow
def test_every_solution_passes_and_every_blank_fails(tmp_path: Path) -> None:
    made = course(tmp_path)
    assert [problem for part in made for problem in part.problems] == []
    assert all(part.results for part in made)

from __future__ import annotations

import nbformat
import pytest

from rlkit import notebooks
from rlkit.course.slices import RECORDED, checked, names, needed, slices


def notebook(*sources: str, parameters: int | None = None) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    if parameters is not None:
        cells[parameters].metadata["tags"] = ["parameters"]
    return nbformat.v4.new_notebook(cells=cells)


def test_names_that_a_cell_binds_and_uses() -> None:
    source = (
        "import torch as t\nfrom a import b\nx = y + 1\ndef f(p):\n    local = p\n    return local + Z + len(p)\nf(2)"
    )
    binds, uses = names(source)
    assert binds == {"t", "b", "x", "f"}
    assert uses == {"y", "Z", "f"}


def test_only_the_cells_that_an_exercise_needs_are_taken() -> None:
    sources = [
        "import rlkit",
        "expensive = train()",
        "G = 2",
        "G = 8",
        "def helper(p):\n    return p ** G",
        "def silent(p, G):\n    return helper(p)\nrlkit.check('tour.silent', silent)",
        "print(expensive)",
    ]
    assert needed(sources, 5) == [0, 3, 4, 5]


def test_a_name_that_is_made_from_itself_is_followed_back() -> None:
    assert needed(["x = 1", "x = x + 1", "y = 3", "print(x)"], 3) == [0, 1, 3]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("rlkit.check('a.b', f)", ["a.b"]),
        ("from rlkit import check\ncheck('a.b', f); check('a.c', g)", ["a.b", "a.c"]),
        ("check(name, f)", []),
        ("# rlkit.check('a.b', f)", []),
        ("def f(:\n  pass\nrlkit.check('a.b', f)", ["a.b"]),
    ],
    ids=["plain", "imported", "computed", "comment", "broken"],
)
def test_checks_are_found_in_source(source: str, found: list[str]) -> None:
    assert checked(source) == found


def test_magics_are_left_out_and_recorded_data_are_asked_for() -> None:
    made = notebook(
        "preset = 'tiny'", "%matplotlib inline\n!ls\nimport rlkit", "rlkit.check('a.b', preset)", parameters=0
    )
    first, second, _ = slices(made)["a.b"].cells
    assert first == "preset = 'tiny'" + RECORDED
    assert second == "\n\nimport rlkit"


def test_of_two_attempts_the_last_counts() -> None:
    assert slices(notebook("check('a.b', 1)", "check('a.b', 2)"))["a.b"].cells == ("check('a.b', 2)",)


@pytest.mark.parametrize("slug", list(notebooks.available()))
def test_no_exercise_of_the_notebooks_needs_a_run(slug: str) -> None:
    """Grading must stay cheap: what a check needs may not draw or train."""
    for part in slices(notebooks.read(slug)).values():
        assert not any(call in cell for cell in part.cells for call in ("study.run(", "study.figure(")), part.name

"""The lint of notebooks finds each kind of problem, and none in the project's own notebooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from rlkit.notebooks.lint import ANATOMY, lint

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_projects_notebooks_have_no_problem(path: Path) -> None:
    assert lint(path) == []


def _good() -> NotebookNode:
    def code(source: str, *tags: str) -> NotebookNode:
        return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {})

    text = [nbformat.v4.new_markdown_cell(f"## {number}. The {word}s") for number, word in enumerate(ANATOMY, 3)]
    cells = [nbformat.v4.new_markdown_cell("# A title"), code('preset = "tiny"', "parameters"), text[0]]
    cells += [code("claims = []", "claims"), *text[1:4], code("arms = []", "arms"), *text[4:]]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def _executed(notebook: NotebookNode) -> None:
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="1")]


def _set(number: int, source: str, *tags: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        notebook.cells[number].source = source
        if tags:
            notebook.cells[number].metadata["tags"] = list(tags)

    return change


def test_a_good_notebook_has_no_problem() -> None:
    assert lint(_good()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_executed, "cell 2: outputs are stored"),
        (lambda nb: nb.cells[1].update(execution_count=3), "cell 2: outputs are stored"),
        (_set(1, "preset = name()"), "may only hold lines of the form"),
        (_set(1, "seeds = 0"), "the parameters have no `preset`"),
        (lambda nb: nb.cells.insert(1, nbformat.v4.new_code_cell("import os")), "the first code cell is cell 2"),
        (_set(3, "claims = []", "other"), "no cells are tagged 'claims'"),
        (_set(3, "claims = []", "claims", "arms"), "2 cells are tagged 'arms'"),
        (_set(3, "x = " + "1 + " * 30 + "1"), "line 1 has 125 characters"),
        (_set(0, "# A title\n" + "word " * 21), "line 2 has 105 characters"),
        (_set(3, "!pip install rlkit-lab"), "installs something"),
        (_set(3, "%pip install -q trl"), "installs something"),
        (_set(3, "x = 1\n!python -m pip install trl"), "installs something"),
        (_set(3, "%matplotlib inline"), "is not Python"),
        (_set(3, " "), "it is empty"),
        (_set(0, "No title"), "must start with the title"),
        (lambda nb: nb.cells.pop(4), "no `##` heading has the word 'equation'"),
        (lambda nb: nb.cells.append(nb.cells.pop(4)), "must come in the order claim, equation"),
        (lambda nb: nb.metadata.kernelspec.update(name="my-env"), "the kernelspec is 'my-env'"),
        (lambda nb: nb.metadata.pop("kernelspec"), "the kernelspec is None"),
        (lambda nb: nb.metadata.update(papermill={}), "metadata of one machine or tool: papermill"),
        (lambda nb: nb.cells[2].update(id=nb.cells[1]["id"]), "cells need ids"),
    ],
)
def test_each_problem_is_found(change: Callable[[NotebookNode], object], problem: str) -> None:
    notebook = _good()
    change(notebook)
    found = lint(notebook)
    assert any(problem in sentence for sentence in found), found


def test_long_links_tables_and_the_colab_cell_are_allowed() -> None:
    notebook = _good()
    notebook.cells[0].source = f"# A title\n[badge]({'x' * 100})\n| {'x' * 100} |"
    notebook.cells.append(nbformat.v4.new_code_cell("!pip install rlkit-lab", metadata={"tags": ["colab"]}))
    assert lint(notebook) == []

"""What every notebook of the project has in common, checked without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.notebooks import colab
from rlkit.notebooks.parameters import ParameterError, read_parameters, tags

if TYPE_CHECKING:
    from nbformat import NotebookNode

WIDTH = 100
TAGS = ("parameters", "claims", "arms")
ANATOMY = ("claim", "equation", "slow motion", "experiment", "figure", "verdict", "differ", "exercise")
"""A word of each section's `##` heading, in this order."""
INSTALL = re.compile(r"^\s*[!%]?\s*(?:python3? -m )?(?:pip|conda|mamba|uv|apt|apt-get)\s+.*\binstall\b", re.MULTILINE)
METADATA = {"kernelspec", "language_info"}
FREE = (colab.COLAB,)
"""A cell with this tag may install things: elsewhere it is skipped."""


def lint(notebook: Any) -> list[str]:
    """The problems of a notebook, each in a sentence; an empty list when there are none.

    Args:
        notebook: a notebook, or the path of one.
    """
    if isinstance(notebook, str | Path):
        import nbformat

        read = nbformat.read(notebook, as_version=4)
        return [*lint(read), *_colab(read, Path(notebook))]
    checks = (_parameters, _cells, _tags, _headings, _metadata)
    return [problem for check in checks for problem in check(notebook)]


def _colab(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Badge and cell are written from one constant, so that no notebook drifts."""
    parts = path.resolve().parts
    place = len(parts) - 1 - parts[::-1].index("notebooks") if "notebooks" in parts else len(parts) - 2
    if notebook.cells and colab.agreed(notebook, "/".join(parts[place + 1 :])) != notebook:
        yield "badge or cell for Colab differ from the constant: run `python -m rlkit.notebooks.colab`"


def _parameters(notebook: NotebookNode) -> Iterator[str]:
    try:
        if "preset" not in read_parameters(notebook):
            yield "the parameters have no `preset`"
    except ParameterError as error:
        yield str(error)


def _cells(notebook: NotebookNode) -> Iterator[str]:
    for number, cell in enumerate(notebook.cells, 1):
        for problem in _cell(cell):
            yield f"cell {number}: {problem}"


def _cell(cell: NotebookNode) -> Iterator[str]:
    for number, line in enumerate(cell.source.splitlines(), 1):
        if len(line) > WIDTH and not (cell.cell_type == "markdown" and ("](" in line or line.startswith("|"))):
            yield f"line {number} has {len(line)} characters, more than {WIDTH}"
    if cell.cell_type != "code":
        return
    if cell.outputs or cell.execution_count is not None:
        yield "outputs are stored: strip them with `nbstripout`"
    if INSTALL.search(cell.source) and not set(FREE) & set(tags(cell)):
        yield "it installs something"
    if not cell.source.strip():
        yield "it is empty"
    elif not set(FREE) & set(tags(cell)):
        yield from _python(cell.source)


def _python(source: str) -> Iterator[str]:
    """Plain Python only: what a magic does cannot be linted, tested or run by `arms_of`."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        yield f"line {error.lineno} is not Python: {error.msg}"


def _tags(notebook: NotebookNode) -> Iterator[str]:
    for tag in TAGS[1:]:  # the parameters cell has its own check
        count = sum(tag in tags(cell) for cell in notebook.cells)
        if count != 1:
            yield f"{count or 'no'} cells are tagged {tag!r}; there must be one"


def _headings(notebook: NotebookNode) -> Iterator[str]:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    if not notebook.cells or not notebook.cells[0].source.startswith("# "):
        yield "the first cell must start with the title, `# ...`"
    headings = [line.lower() for line in text.splitlines() if line.startswith("## ")]
    places = {word: next((n for n, line in enumerate(headings) if word in line), None) for word in ANATOMY}
    missing = [word for word, place in places.items() if place is None]
    if missing:
        yield f"no `##` heading has the word {' or '.join(map(repr, missing))}"
    found = [place for place in places.values() if place is not None]
    if found != sorted(found):
        yield f"the `##` headings must come in the order {', '.join(ANATOMY)}"


def _metadata(notebook: NotebookNode) -> Iterator[str]:
    name = notebook.metadata.get("kernelspec", {}).get("name")
    if name != "python3":
        yield f"the kernelspec is {name!r}; it must be 'python3', which every machine has"
    extra = sorted(set(notebook.metadata) - METADATA)
    if extra:
        yield f"metadata of one machine or tool: {', '.join(extra)}"
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) != len(ids):
        yield "cells need ids, each another one (nbformat 4.5)"

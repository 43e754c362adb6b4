"""`rlkit course`: student and solution notebooks, and a check that solutions pass and blanks fail.

The marks are nbgrader's, and so is what stands in the place of a solution: nbgrader itself can take these notebooks as
its source. It is no dependency: of its 80 MB (a database toolkit, a second notebook server, extensions that it switches
on in everybody's JupyterLab) a page of code was needed here.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit import notebooks
from rlkit.course.checking import Limits, Result, check_notebook

if TYPE_CHECKING:
    from nbformat import NotebookNode

BEGIN = re.compile(r"^\s*#+\s*BEGIN SOLUTION\b")
END = re.compile(r"^\s*#+\s*END SOLUTION\b")
STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
KINDS = ("student", "solution")


@dataclass(frozen=True)
class Made:
    """One notebook of the course and what its checks said."""

    slug: str
    kind: str
    """"student" or "solution"."""
    path: Path
    results: tuple[Result, ...]

    @property
    def problems(self) -> list[str]:
        """What is wrong: a solution that does not pass, a blank that does."""
        passes = self.kind == "solution"
        return [
            f"{self.path}: {result.exercise or 'the notebook'} {result.result}: {result.message}"
            for result in self.results
            if (result.result == "passed") != passes or result.result not in ("passed", "failed")
        ]


def blank(source: str) -> str:
    """A cell's source with a stub in the place of each solution, as nbgrader writes it.

    Raises:
        ValueError: marks that do not pair.
    """
    lines: list[str] = []
    inside = False
    for line in source.split("\n"):
        if BEGIN.match(line):
            if inside:
                raise ValueError("a solution begins inside another one")
            inside, indent = True, line[: len(line) - len(line.lstrip())]
            lines += [indent + text for text in STUB]
        elif END.match(line):
            if not inside:
                raise ValueError("a solution ends that did not begin")
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError("a solution does not end: ### END SOLUTION is missing")
    return "\n".join(lines)


def has_exercises(notebook: NotebookNode) -> bool:
    """Whether there is something to fill in."""
    return any(BEGIN.match(line) for cell in notebook.cells for line in cell.source.splitlines())


def student(notebook: NotebookNode) -> NotebookNode:
    """A copy without solutions.

    Raises:
        ValueError: marks that do not pair; the message names the cell.
    """
    made = copy.deepcopy(notebook)
    for number, cell in enumerate(made.cells, 1):
        try:
            if cell.cell_type == "code":
                cell.source = blank(cell.source)
        except ValueError as error:
            raise ValueError(f"cell {number}: {error}") from None
    return made


def make(folder: Path, slugs: list[str] | None = None) -> list[tuple[str, str, Path]]:
    """Write the notebooks that have exercises to `folder/student` and `folder/solution`: slug, kind and file of each.

    Raises:
        NotebookError: a name that is no notebook.
        ValueError: no exercises, or marks that do not pair.
    """
    import nbformat

    files = []
    for slug in map(notebooks.resolve, slugs or list(notebooks.available())):
        notebook, name = notebooks.read(slug), notebooks.available()[slug].name
        if not has_exercises(notebook):
            continue
        try:
            made = {"student": student(notebook), "solution": notebook}
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        for kind in KINDS:
            path = folder / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(made[kind], path)
            files.append((slug, kind, path))
    if not files:
        raise ValueError("none of these notebooks has exercises between ### BEGIN SOLUTION and ### END SOLUTION")
    return files


def course(folder: Path, slugs: list[str] | None = None, limits: Limits | None = None) -> list[Made]:
    """Make the course's notebooks and check them; arguments and errors as for `make`.

    Only the cells that an exercise needs are executed, and what was trained is read from recorded data.
    """
    return [Made(slug, kind, path, tuple(check_notebook(path, limits))) for slug, kind, path in make(folder, slugs)]

"""The cells that one exercise of a notebook needs: its own, and those before it whose names it uses.

Executing whole notebooks would draw every figure for every student. Nothing is executed here.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlkit.notebooks.parameters import TAG, tags

if TYPE_CHECKING:
    from nbformat import NotebookNode

RECORDED = '\npreset = "full"\n'
"""Recorded data are those of the preset full."""


@dataclass(frozen=True)
class Slice:
    """What it takes to check one exercise."""

    name: str
    """The exercise: "median_baseline.advantage"."""
    cells: tuple[str, ...]
    """Sources, in order; the last one has the check."""


def slices(notebook: NotebookNode) -> dict[str, Slice]:
    """The exercises of a notebook by name, each with its cells; of two cells that check the same, the last counts."""
    sources = [_source(cell) for cell in notebook.cells if cell.cell_type == "code"]
    found = {}
    for place, source in enumerate(sources):
        for name in checked(source):
            found[name] = Slice(name, tuple(sources[n] for n in needed(sources, place)))
    return found


def _source(cell: NotebookNode) -> str:
    """A cell's Python: without the lines of notebook magics, and with the preset that recorded data belong to."""
    plain = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in cell.source.splitlines())
    return plain + (RECORDED if TAG in tags(cell) else "")


def checked(source: str) -> list[str]:
    """The exercises that a cell checks: the first argument of each call of `check`."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return [name for name in _guessed(source)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    names = [call.args[0] for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) == "check"]
    return [name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)]


def _guessed(source: str) -> Iterator[str]:
    """The same for a cell that is no Python: the student should read that, not that the exercise is missing."""
    for line in source.splitlines():
        head, call, rest = line.partition("check(")
        if call and not head.lstrip().startswith("#") and rest[:1] in {'"', "'"}:
            yield rest[1:].partition(rest[0])[0]


def needed(sources: Sequence[str], place: int) -> list[int]:
    """The numbers of the cells that cell `place` needs, itself the last: for each name, the last cell that binds it."""
    binds, uses = zip(*map(names, sources[: place + 1]), strict=True)
    wanted, todo = {place}, [place]
    while todo:
        cell = todo.pop()
        for name in uses[cell]:
            before = next((n for n in range(cell - 1, -1, -1) if name in binds[n]), None)
            if before is not None and before not in wanted:
                wanted.add(before)
                todo.append(before)
    return sorted(wanted)


def names(source: str) -> tuple[set[str], set[str]]:
    """The names that a cell binds at its top level, and those that it reads there or as globals in its functions."""
    try:
        top = symtable.symtable(source, "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return set(), set()
    symbols = top.get_symbols()
    binds = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    uses = {symbol.get_name() for symbol in symbols if symbol.is_referenced()} | set(_globals(top))
    return binds, {name for name in uses if not hasattr(builtins, name) or name in binds}


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    for child in table.get_children():
        yield from (symbol.get_name() for symbol in child.get_symbols() if symbol.is_global())
        yield from _globals(child)

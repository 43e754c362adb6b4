"""The parameters of a notebook: which there are, of what type, and whether a given value fits.

The `parameters` cell is read with `ast`, never executed: defaults are literals, so their types are known beforehand and
a notebook without kernelspec or with a default over several lines is no special case.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, get_origin

from rlkit.console import looks_secret
from rlkit.method import near

if TYPE_CHECKING:
    from nbformat import NotebookNode

TAG = "parameters"
TYPES: dict[str, Any] = {t.__name__: t for t in (bool, int, float, str, list, dict, tuple)} | {"Optional": Optional}


SEEDS = {"seeds": int | list[int]}
"""`seeds` is a number of seeds, or a list of them: a student's own is `[17]`."""


class ParameterError(ValueError):
    """A parameter that the notebook does not have, or a value that does not fit it."""


@dataclass(frozen=True)
class Parameter:
    """One line of the `parameters` cell."""

    name: str
    type: Any
    """The annotation if there is one, else the type of the default."""
    default: Any

    def __str__(self) -> str:
        return f"{self.name}={self.default!r}"


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return list(cell.get("metadata", {}).get("tags", []))


def read_parameters(notebook: NotebookNode) -> dict[str, Parameter]:
    """The parameters of a notebook by name, in order.

    Raises:
        ParameterError: no cell is tagged `parameters`, several are, it is not the first code cell, or a line of it is
            not `name = literal`.
    """
    tagged = [number for number, cell in enumerate(notebook.cells) if TAG in tags(cell)]
    if not tagged:
        raise ParameterError("no cell is tagged 'parameters': tag the cell that holds the defaults")
    if len(tagged) > 1:
        raise ParameterError(f"cells {', '.join(str(n + 1) for n in tagged)} are all tagged 'parameters': keep one")
    first = next(n for n, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    if tagged[0] != first:
        raise ParameterError(
            f"cell {tagged[0] + 1} is tagged 'parameters' but the first code cell is cell {first + 1}: "
            "what runs before the parameters would not see them"
        )
    return {item.name: item for item in map(_parameter, _statements(notebook.cells[first].source))}


def _statements(source: str) -> list[ast.stmt]:
    try:
        return [line for line in ast.parse(source).body if not _is_text(line)]
    except SyntaxError as error:
        raise ParameterError(f"the 'parameters' cell is not Python: line {error.lineno}: {error.msg}") from None


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _parameter(line: ast.stmt) -> Parameter:
    target = line.targets[0] if isinstance(line, ast.Assign) and len(line.targets) == 1 else None
    target = line.target if isinstance(line, ast.AnnAssign) else target
    value = getattr(line, "value", None)
    try:
        if not isinstance(target, ast.Name) or value is None:
            raise ValueError
        default = ast.literal_eval(value)
    except (ValueError, TypeError):
        raise ParameterError(
            f"the 'parameters' cell may only hold lines of the form `name = literal`, not `{ast.unparse(line)}`"
        ) from None
    usual = SEEDS.get(target.id) or _type_of(default)
    kind = _annotation(line.annotation) if isinstance(line, ast.AnnAssign) else usual
    return Parameter(target.id, kind, default)


def _annotation(node: ast.expr) -> Any:
    """The type that an annotation of built-in names means."""
    unknown = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)} - set(TYPES)
    if unknown or any(isinstance(part, ast.Call | ast.Attribute) for part in ast.walk(node)):
        raise ParameterError(f"annotate parameters with {', '.join(TYPES)} only, not `{ast.unparse(node)}`")
    return eval(compile(ast.Expression(node), "<annotation>", "eval"), {"__builtins__": {}}, TYPES)


def _type_of(default: Any) -> Any:
    """The type of a default; what a list or tuple holds is taken from its first item."""
    if isinstance(default, list) and default:
        return list[_type_of(default[0])]  # type: ignore[misc]
    if isinstance(default, tuple) and default:
        return tuple[_type_of(default[0]), ...]  # type: ignore[misc]
    return Any if default is None else type(default)


def coerce(known: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values in the types of the defaults: `"1e-5"` becomes a float, `no` a bool where the default is one.

    Raises:
        ParameterError: an unknown name (the message lists the known ones), a value of another type, or a secret: the
            executed notebook would keep it in plain text.
    """
    for name, value in given.items():
        if looks_secret(name, value):
            raise ParameterError(
                f"parameter {name!r} looks like a secret, and the executed notebook would keep it in plain text: "
                "put it into an environment variable"
            )
        if name not in known:
            listing = ", ".join(map(str, known.values())) or "none"
            raise ParameterError(f"unknown parameter {name!r}. {near(name, list(known))} The notebook has: {listing}")
    values = {name: _coerced(known[name], value) for name, value in given.items()}
    for name in {*SEEDS} & {*values}:
        seeds = values[name] if isinstance(values[name], list) else [values[name]]
        if min(seeds, default=-1) < 0:
            raise ParameterError(f"parameter {name} is a number of seeds or a list of them, not {values[name]!r}")
    return values


def _coerced(parameter: Parameter, value: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    parsed = _parsed(value) if parameter.type not in (str, bool, int, float) else value
    try:
        if isinstance(parsed, bool) and parameter.type in (int, float, *SEEDS.values()):  # `no` is not 0
            raise ValueError("a truth value is no number")
        adapter = TypeAdapter(parameter.type, config=ConfigDict(allow_inf_nan=False))
        return adapter.validate_python(parsed)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
    except ValueError as error:
        reason = str(error)
    name = str(parameter.type) if get_origin(parameter.type) else getattr(parameter.type, "__name__", parameter.type)
    raise ParameterError(f"parameter {parameter} is of type {name}; {value!r} is not: {reason}")


def _parsed(value: Any) -> Any:
    """A string from the command line as the literal that it spells, where it spells one."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value

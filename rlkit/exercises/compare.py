"""Two results of a function, compared with sense: where they differ, in words with the numbers.

Tensors, arrays, lists and numbers are the same thing here if their numbers are; 1 and 1.0 and True are, too. NaN is
NaN. A shape counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

SHOWN = 40
"""A tensor with more numbers than this is shown by its shape."""


def difference(expected: Any, got: Any, tolerance: float = 1e-5, names: Sequence[str] = (), what: str = "") -> str:
    """The first difference in a clause that follows on "it gives ..."; empty where there is none.

    Args:
        expected: what is right: a tensor, array, number, text, or a tuple, list or dict of them.
        got: what came.
        tolerance: how far a number may be off, relative to its size, absolute below 1.
        names: what the parts of a tuple are called.
        what: what the whole is called.
    """
    if got is None and expected is not None:
        return f"{what or 'the result'} is None"
    if isinstance(expected, Mapping):
        return _of_mapping(expected, got, tolerance, what)
    if isinstance(expected, tuple) or (isinstance(expected, list) and numbers(expected) is None):
        return _of_parts(expected, got, tolerance, names, what)
    if isinstance(expected, str) or numbers(expected) is None:
        return "" if type(got) is type(expected) and got == expected else _unequal(what, got, expected)
    return _of_numbers(expected, got, tolerance, what)


def _unequal(what: str, got: Any, expected: Any) -> str:
    return f"{what or 'the result'} is {shown(got)}, expected {shown(expected)}"


def _of_parts(expected: Sequence[Any], got: Any, tolerance: float, names: Sequence[str], what: str) -> str:
    wanted = f"{len(expected)} results" + (f" ({', '.join(names)})" if names else "")
    if not isinstance(got, tuple | list):
        return f"there is one {kind(got)} instead of {wanted}"
    if len(got) != len(expected):
        return f"there are {len(got)} results instead of {wanted}"
    for place, (right, mine) in enumerate(zip(expected, got, strict=True)):
        name = names[place] if place < len(names) else f"{what or 'result'}[{place}]"
        if found := difference(right, mine, tolerance, what=name):
            return found
    return ""


def _of_mapping(expected: Mapping[Any, Any], got: Any, tolerance: float, what: str) -> str:
    if not isinstance(got, Mapping):
        return f"{what or 'the result'} is a {kind(got)}, expected a dict"
    if odd := sorted(set(map(str, expected)) ^ set(map(str, got))):
        where = "lacks" if odd[0] in set(map(str, expected)) else "has"
        return f"{what or 'the dict'} {where} the key {odd[0]!r}"
    parts = (difference(value, got[name], tolerance, what=f"{what}[{name!r}]") for name, value in expected.items())
    return next(filter(None, parts), "")


def _of_numbers(expected: Any, got: Any, tolerance: float, what: str) -> str:
    right, mine = numbers(expected), numbers(got)
    assert right is not None
    name = what or "the result"
    if mine is None:
        return f"{name} is a {kind(got)}, expected {'a number' if right.ndim == 0 else 'a tensor'}"
    if mine.shape != right.shape:
        return f"{name} has shape {mine.shape}, expected {right.shape}"
    bad = ~np.isclose(mine, right, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    where = f"{name}{list(place)}" if place else name
    count = f"; {int(bad.sum())} of {bad.size} entries differ" if bad.size > 1 else ""
    boolean = is_boolean(expected)
    return f"{where} is {number(mine[place], boolean)}, expected {number(right[place], boolean)}{count}"


def numbers(value: Any) -> np.ndarray | None:
    """A tensor, array, number or nested list of numbers as an array of floats; None for anything else."""
    try:
        array = np.asarray(value.detach().cpu().double() if hasattr(value, "detach") else value)
    except Exception:  # lists of different lengths, tensors without numbers, objects that only look like a tensor
        return None
    return array.astype(float) if array.dtype.kind in "biuf" and array.dtype != object else None


def is_boolean(value: Any) -> bool:
    """Whether a tensor, array or number holds True and False."""
    return "bool" in str(getattr(value, "dtype", type(value).__name__))


def number(value: float, boolean: bool = False) -> str:
    """A number for people: at most 4 digits behind the point, or True and False."""
    if boolean and value in (0, 1):
        return str(bool(value))
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.6g}"


def shown(value: Any) -> str:
    """A value in one line; a large tensor by its shape."""
    array = None if isinstance(value, str | tuple) else numbers(value)
    if array is None:
        if isinstance(value, tuple):
            return f"({', '.join(map(shown, value))})"
        return said(value, repr)
    if array.size > SHOWN:
        return f"a tensor of shape {array.shape}"
    return _nested(array, is_boolean(value))


def said(value: Any, say: Callable[[Any], str] = str, limit: int = 80) -> str:
    """What an object says of itself, cut and with control characters made visible; its type where it cannot."""
    from rlkit.steps.marks import readable

    try:
        text = say(value)
    except Exception:
        return f"<{type(value).__name__}>"
    return readable(text, limit)


def _nested(array: np.ndarray, boolean: bool) -> str:
    if array.ndim == 0:
        return number(float(array), boolean)
    return f"[{', '.join(_nested(part, boolean) for part in array)}]"


def kind(value: Any) -> str:
    """What a value is called."""
    return {"ndarray": "array", "int": "number", "float": "number", "str": "text"}.get(
        type(value).__name__, type(value).__name__.lower()
    )

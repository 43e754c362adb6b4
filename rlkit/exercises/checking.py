"""`check`: a student's function on many cases, beside our own; the first failure in words with the numbers.

What is not done: a function that never ends is not stopped, and one that reads our reference is not caught.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import linecache
import os
import pkgutil
import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from rlkit.exercises.compare import difference, said, shown
from rlkit.exercises.exercise import Case, Exercise
from rlkit.method import near

STRICT = "RLKIT_STRICT_CHECKS"
OWN = ("checking", "compare", "exercise")
"""Modules here that are no notebook's."""


@dataclass(frozen=True)
class Outcome:
    """What came of a check."""

    name: str
    passed: bool
    text: str
    """In a sentence."""
    details: Mapping[str, str] = field(default_factory=dict)
    """What to look at: input, expected, got, hint."""

    def __repr__(self) -> str:
        width = max(map(len, self.details), default=0)
        lines = [f"  {name.ljust(width)}  {value}" for name, value in self.details.items()]
        return "\n".join([f"{'✔' if self.passed else '✘'} {self.name}: {self.text}", *lines])

    def _repr_html_(self) -> str:
        colour = "#029e73" if self.passed else "#d55e00"  # beside a sign and words, which say the same
        cells = [
            Markup('<tr><td style="text-align:left;padding-right:1em">{}</td><td style="text-align:left">{}</td></tr>')
            .format(name, value if name == "hint" else Markup("<code>{}</code>").format(value))
            for name, value in self.details.items()
        ]  # fmt: skip
        table = Markup('<table style="color:inherit">{}</table>').format(Markup("").join(cells)) if cells else ""
        return str(
            Markup('<div style="border-left:4px solid {};padding:.2em .8em"><b>{} {}</b>: {}{}</div>').format(
                colour, "✔" if self.passed else "✘", self.name, self.text, table
            )
        )


def check(name: str, function: Callable[..., Any]) -> Outcome:
    """Try a function on the cases of an exercise, seen and unseen, and explain the first that is wrong.

    Inputs are copies, random numbers are seeded, and the caller's random state is put back. With
    `RLKIT_STRICT_CHECKS=1` (notebooks run by `rlkit figures`, graders) a failure raises; else it is only shown.

    Args:
        name: notebook and exercise: "median_baseline.advantage".
        function: the student's.

    Raises:
        ValueError: there is no such exercise; the message lists near ones.
        AssertionError: in strict mode, the function is wrong.
    """
    exercise = find(name)
    outcome = Outcome(name, *_first_failure(exercise, function))
    if strict() and not outcome.passed:
        raise AssertionError(repr(outcome))
    return outcome


def strict() -> bool:
    """Whether a notebook is executed by a program rather than read by a person: failures then raise."""
    return os.environ.get(STRICT) == "1"


def find(name: str) -> Exercise:
    """An exercise by its name.

    Raises:
        ValueError: there is none.
    """
    slug, _, own = name.partition(".")
    if slug in _modules() and own in (known := _exercises(slug)):
        return known[own]
    raise ValueError(f"There is no exercise {name!r}. {near(name, names())}")


def names() -> list[str]:
    """All exercises."""
    return [f"{slug}.{own}" for slug in _modules() for own in _exercises(slug)]


def _modules() -> list[str]:
    import rlkit.exercises as package

    return sorted(info.name for info in pkgutil.iter_modules(package.__path__) if info.name not in OWN)


def _exercises(slug: str) -> dict[str, Exercise]:
    return importlib.import_module(f"rlkit.exercises.{slug}").EXERCISES


def _first_failure(exercise: Exercise, function: Any) -> tuple[bool, str, dict[str, str]]:
    if not callable(function):
        return False, f"give the function itself, not a {type(function).__name__}: leave out the brackets.", {}
    calls = exercise.calls()
    for number, case in enumerate(calls, 1):
        if (problem := _problem(exercise, function, case)) is not None:
            text, details = problem
            note = f" ({case.note})" if case.note else ""
            return False, f"case {number} of {len(calls)}{note}: {text}.", details
    return True, f"right in all {len(calls)} cases.", {}


def _problem(exercise: Exercise, function: Callable[..., Any], case: Case) -> tuple[str, dict[str, str]] | None:
    """What is wrong with one call; None where nothing is."""
    given = _arguments(exercise.reference, case)
    details = {"input": ", ".join(f"{name} = {shown(value)}" for name, value in given.items())}
    if not _takes(function, case):
        return f"the function has to take ({', '.join(given)})", {}
    try:
        got, after = _called(function, case)
    except NotImplementedError:
        return "nothing is written here yet", {}
    except (Exception, SystemExit) as error:
        return f"it raised {type(error).__name__}: {said(error, limit=300)}", {**details, **_line(error, function)}
    changed = [name for (name, before), now in zip(given.items(), after, strict=True) if difference(before, now, 0.0)]
    if changed:
        return f"the function changes its input {changed[0]!r}, which the caller uses again", {
            **details,
            "hint": "Use operations that are not in place, or make a copy first (.clone()).",
        }
    expected = _called(exercise.reference, case)[0]
    if found := _difference(expected, got, exercise):
        return found, {**details, "expected": shown(expected), "got": shown(got), **_hint(exercise, case, got)}
    return None


def _difference(expected: Any, got: Any, exercise: Exercise) -> str:
    try:
        return difference(expected, got, exercise.tolerance, exercise.returns)
    except Exception as error:  # what came may be anything, also something that cannot be compared
        return f"the result, {said(got, repr)}, cannot be compared ({type(error).__name__})"


def _takes(function: Callable[..., Any], case: Case) -> bool:
    """Whether it can be called like this."""
    try:
        inspect.signature(function).bind(*case.args, **case.kwargs)
    except TypeError:
        return False
    except ValueError:  # a built-in does not say
        return True
    return True


def _hint(exercise: Exercise, case: Case, got: Any) -> dict[str, str]:
    """The mistake that gives just this result, else the exercise's general hint."""
    if got is None:
        return {"hint": "The function ends without `return`."}
    for sentence, wrong in exercise.mistakes.items():
        try:
            if not difference(_called(wrong, case)[0], got, exercise.tolerance):
                return {"hint": sentence}
        except Exception:  # a mistake that cannot be made on this case
            continue
    return {"hint": exercise.hint} if exercise.hint else {}


def _called(function: Callable[..., Any], case: Case) -> tuple[Any, list[Any]]:
    """The result of a call on copies of the inputs, and those copies afterwards."""
    args, kwargs = copy.deepcopy((case.args, dict(case.kwargs)))
    with same_random_numbers():
        result = function(*args, **kwargs)
    return result, [*args, *kwargs.values()]


def _arguments(reference: Callable[..., Any], case: Case) -> dict[str, Any]:
    """Inputs by the names that the reference gives them."""
    order = list(inspect.signature(reference).parameters)[: len(case.args)]
    return {**dict(zip(order, case.args, strict=True)), **case.kwargs}


def _line(error: BaseException, function: Any) -> dict[str, str]:
    """The line of the student's function where it broke."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if not frames:
        return {}
    text = frames[-1].line or linecache.getline(str(file), frames[-1].lineno or 0)
    return {"line": text.strip()} if text.strip() else {}


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Seed torch, numpy and random, and put their states back."""
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            random.seed(0)
            np.random.seed(0)
            torch.manual_seed(0)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])

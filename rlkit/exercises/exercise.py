"""What an exercise is: a reference function, the cases to try, and the mistakes that are worth naming."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One call. What it should give is computed by the exercise's reference, never written down."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    """What is special about it, in a few words: "two rollouts tie"."""


@dataclass(frozen=True)
class Exercise:
    """A function to write, and how it is checked."""

    what: str
    """The task in a sentence."""
    reference: Callable[..., Any]
    """Our own function: gives what is right."""
    cases: Sequence[Case] | Callable[[], Iterable[Case]]
    """The calls to try, the simplest first; what is random in them has a fixed seed."""
    tolerance: float = 1e-5
    """How far a number may be off, relative to its size, absolute below 1."""
    hint: str = ""
    """Said with every wrong result that is none of the mistakes below."""
    mistakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Sentence to a function that makes this mistake: said where the student's result is what that function gives."""
    returns: Sequence[str] = ()
    """Names of what a tuple of results holds."""

    def calls(self) -> list[Case]:
        """Its cases.

        Raises:
            ValueError: there are none.
        """
        cases = list(self.cases() if callable(self.cases) else self.cases)
        if not cases:
            raise ValueError("An exercise needs at least one case.")
        return cases

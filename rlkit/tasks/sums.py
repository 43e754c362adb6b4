"""One-digit sums as chat, for a small pretrained model: it can add, and does not always say so.

There are 100 problems, a + b with a and b from 0 to 9. Both orders of a pair are in one split: half of the pairs train,
a tenth validate, the rest test.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlkit.tasks.base import OptionTask, Reward, check_split, stable_fraction, text_of

if TYPE_CHECKING:
    from datasets import Dataset

NUMBER = re.compile(r"(?<![\d.])\d{1,6}(?![\d.]*\d)")
SYSTEM = "Reply with one number."
"""Short, since every step reads it for every rollout; SmolLM2-135M-Instruct is right on 65 of the 100 sums then."""
FAR = 10
"""A difference from which on a number is as wrong as can be."""


def answer_in(completion: Any) -> int | None:
    """The last whole number of a completion, or None; one of more than 6 digits is none."""
    numbers = NUMBER.findall(text_of(completion))
    return int(numbers[-1]) if numbers else None


def exact(completions: Sequence[Any], gold: Sequence[str], **columns: Any) -> list[float]:
    """1.0 where the last number is the sum, else 0.0."""
    return [float(answer_in(text) == int(right)) for text, right in zip(completions, gold, strict=True)]


def graded(completions: Sequence[Any], gold: Sequence[str], **columns: Any) -> list[float]:
    """1.0 for the sum; a number that is off by d has .5 (1 - d / 10), down to 0; no number has 0."""
    return [_grade(answer_in(text), int(right)) for text, right in zip(completions, gold, strict=True)]


def _grade(answer: int | None, right: int) -> float:
    if answer is None:
        return 0.0
    return 1.0 if answer == right else 0.5 * max(0.0, 1 - abs(answer - right) / FAR)


def split_of_pair(a: int, b: int) -> str:
    """The split that a pair of numbers belongs to, in either order."""
    fraction = stable_fraction(f"{min(a, b)}+{max(a, b)}")
    return "train" if fraction < 0.5 else "validation" if fraction < 0.6 else "test"


@dataclass(frozen=True)
class Sums(OptionTask):
    """Sums of two one-digit numbers. Rows have `prompt` (messages), `gold` and `id`."""

    kind: ClassVar[str] = "sums"
    default_reward: ClassVar[str] = "exact"  # type: ignore[misc]

    def dataset(self, split: str, size: int, seed: int = 0) -> Dataset:
        """At most `size` rows of the split, in an order drawn from `seed`."""
        from datasets import Dataset

        check_split(split, size)
        pairs = [pair for pair in itertools.product(range(10), repeat=2) if split_of_pair(*pair) == split]
        random.Random(f"{split}/{seed}").shuffle(pairs)
        return Dataset.from_list([self._row(split, a, b) for a, b in pairs[:size]])

    @staticmethod
    def _row(split: str, a: int, b: int) -> dict[str, Any]:
        asked = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{a} + {b}"}]
        return {"prompt": asked, "gold": str(a + b), "id": f"{split}/{a}+{b}"}

    @property
    def rewards(self) -> Mapping[str, Reward]:
        """`exact` and `graded`."""
        return {"exact": exact, "graded": graded}

    @property
    def config(self) -> Mapping[str, Any]:
        """Room for a short sentence."""
        return {"max_completion_length": 16}

    def correct(self, completions: Sequence[Any], gold: Sequence[str]) -> list[float]:
        """1.0 where the last number is the sum, else 0.0."""
        return exact(completions, gold)

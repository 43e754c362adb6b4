r"""What the tasks with mathematical answers share: the instruction to box the answer, the reward, and the grading."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlkit.method import near
from rlkit.tasks.base import OptionTask, Reward, check_split, stable_fraction, text_of

if TYPE_CHECKING:
    from datasets import Dataset

BOXED = r"Think step by step, then write the final answer in \boxed{}."
HASHED = "Think step by step, then write the final answer on a line of its own after ####."
STYLES = {"boxed": (BOXED, "\\boxed{{{}}}"), "hashed": (HASHED, "#### {}"), "none": ("", "\\boxed{{{}}}")}


def form(completions: Sequence[Any], **columns: Any) -> list[float]:
    r"""1.0 where an answer stands in a box or after `####`, whatever it is: the control that sees no gold answer."""
    from rlkit.grading.answers import marked

    return [float(bool(marked(text_of(completion)))) for completion in completions]


@dataclass(frozen=True)
class GradedTask(OptionTask):
    """A task whose answers are graded by `rlkit.grade`. Rows have `prompt`, `gold`, `id` and `difficulty`."""

    default_reward: ClassVar[str] = "math"  # type: ignore[misc]

    style: str = "boxed"
    r"""How the answer is to be marked: "boxed" (`\boxed{}`), "hashed" (`####`) or "none" (nothing is asked for)."""

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ValueError(f"{self.kind}: there is no style {self.style!r}. {near(self.style, list(STYLES))}")

    def asked(self, question: str) -> str:
        """A question as a prompt."""
        return "\n".join(filter(None, (question.strip(), STYLES[self.style][0])))

    @property
    def rewards(self) -> Mapping[str, Reward]:
        """`math`: 1 for the right answer, else 0. `form`: 1 for an answer that is marked, right or not."""
        from rlkit.rewards import math

        return {"math": math, "form": form}

    def solution(self, gold: str) -> str:
        """The gold answer as a completion that marks it."""
        return STYLES[self.style][1].format(gold)

    def correct(self, completions: Sequence[Any], gold: Sequence[str]) -> list[float]:
        """1.0 for the right answer, else 0.0."""
        from rlkit.grading.grader import grade_batch

        return [float(bool(value)) for value in grade_batch(completions, gold)]


@dataclass(frozen=True)
class HubTask(GradedTask):
    """A data set of the hub at a fixed commit. A ninth of its train split, by the question's text, is validation."""

    commit: ClassVar[str] = ""
    part: ClassVar[str | None] = None
    """The hub's name for the part of the data set."""

    source: str = ""
    """Hub id, or a folder with a copy of the repository."""

    def dataset(self, split: str, size: int, seed: int = 0) -> Dataset:
        """At most `size` rows of the split, in an order drawn from `seed`; a question of test is in no other split.

        Raises:
            OSError: the data set is neither on this machine nor within reach.
        """
        from datasets import Dataset

        check_split(split, size)
        rows = self._rows(split)
        random.Random(f"{split}/{seed}").shuffle(rows)
        return Dataset.from_list(rows[:size])

    def _rows(self, split: str) -> list[dict[str, Any]]:
        seen = {self.question(row) for row in self._read("test")} if split != "test" else set()
        found = []
        for number, row in enumerate(self._read("test" if split == "test" else "train")):
            question = self.question(row)
            held_out = split != "test" and stable_fraction(question) >= 8 / 9
            if question in seen or (split != "test" and held_out != (split == "validation")):
                continue
            seen.add(question)
            name = f"{'test' if split == 'test' else 'train'}/{number}"
            found.append({"prompt": self.asked(question), "gold": self.answer(row), "id": name, **self.extra(row)})
        return found

    def _read(self, split: str) -> Any:
        from rlkit.tasks.data import read_rows

        own = type(self).source != self.source  # another repository has other commits
        return read_rows(self.source, split, self.part, None if own else self.commit)

    @abstractmethod
    def question(self, row: Mapping[str, Any]) -> str:
        """The question of a row as the hub gives it."""

    @abstractmethod
    def answer(self, row: Mapping[str, Any]) -> str:
        """The gold answer of such a row."""

    @abstractmethod
    def extra(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Further columns, `difficulty` among them."""

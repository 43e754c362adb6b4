"""Word problems and sums without end, made on this machine by reasoning-gym: `pip install "rlkit-lab[reasoning]"`.

`gsm_symbolic` has the templates of GSM-Symbolic (arXiv 2410.05229), GSM8K with other names and numbers. The text
of a problem alone decides its split, so the splits share no problem at any size and for any seed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlkit.tasks.base import check_split, split_of, stable_fraction
from rlkit.tasks.graded import GradedTask

if TYPE_CHECKING:
    from datasets import Dataset

PATIENCE = 2000
"""Draws in a row without a new problem after which a split counts as used up."""


@dataclass(frozen=True)
class ReasoningTask(GradedTask):
    """A generator of reasoning-gym as a task."""

    generator: ClassVar[str] = ""
    """reasoning-gym's name for it."""

    def options(self) -> dict[str, Any]:
        """What the generator is told."""
        return {}

    def difficulty(self, entry: Mapping[str, Any]) -> int:
        """How hard a problem is, as a count."""
        raise NotImplementedError

    def dataset(self, split: str, size: int, seed: int = 0) -> Dataset:
        """`size` rows with `prompt`, `gold`, `id` and `difficulty`; no problem comes twice.

        Raises:
            ImportError: reasoning-gym is not installed.
            ValueError: the generator has fewer problems.
        """
        from datasets import Dataset

        check_split(split, size)
        rows: list[dict[str, Any]] = []
        for entry in self._problems(split, seed):
            question = entry["question"]
            row = {"prompt": self.asked(question), "gold": entry["answer"]}
            rows.append(
                {**row, "id": f"{self.kind}/{stable_fraction(question):.12f}", "difficulty": self.difficulty(entry)}
            )
            if len(rows) == size:
                return Dataset.from_list(rows)
        raise ValueError(f"{self.name} has only {len(rows)} problems in {split!r}, not {size}.")

    def _problems(self, split: str, seed: int) -> Iterator[dict[str, Any]]:
        """Problems of a split, each once."""
        seen: set[str] = set()
        block, idle = 0, 0
        while idle < PATIENCE:
            for entry in self._block(f"{self.kind}/{split}/{seed}/{block}"):
                question = entry["question"]
                idle += 1
                if question not in seen and split_of(question) == split:
                    seen.add(question)
                    idle = 0
                    yield entry
            block += 1

    def _block(self, label: str, size: int = 500) -> Iterator[dict[str, Any]]:
        try:
            reasoning_gym = importlib.import_module("reasoning_gym")  # an extra
        except ImportError as error:
            raise ImportError(
                f'The task {self.kind!r} needs reasoning-gym: pip install "rlkit-lab[reasoning]".'
            ) from error
        # Its problem i is drawn from seed + i: seeds must lie far apart.
        seed = int(stable_fraction(label) * 2**48)
        made = reasoning_gym.create_dataset(self.generator, seed=seed, size=size, **self.options())
        return (made[i] for i in range(size))


@dataclass(frozen=True)
class GsmSymbolic(ReasoningTask):
    """Word problems as in GSM8K with whole numbers as answers. The difficulty is the number of lines of a solution."""

    kind: ClassVar[str] = "gsm_symbolic"
    generator: ClassVar[str] = "gsm_symbolic"

    def difficulty(self, entry: Mapping[str, Any]) -> int:
        """Lines of the solution, the one with the answer left out."""
        return int(entry["metadata"]["answer_cot"].strip().count("\n"))

    @property
    def config(self) -> Mapping[str, Any]:
        """Room for a worked solution."""
        return {"max_completion_length": 512}


@dataclass(frozen=True)
class ChainSum(ReasoningTask):
    """Sums of `terms` numbers of `digits` digits. The difficulty is the number of terms.

    Raises:
        ValueError: an option is out of its range.
    """

    kind: ClassVar[str] = "chain_sum"
    generator: ClassVar[str] = "chain_sum"

    terms: int = 4
    """How many numbers a problem adds and subtracts, at least 2."""
    digits: int = 2
    """Digits of each number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (2 <= self.terms <= 50 and 1 <= self.digits <= 12):
            raise ValueError(
                f"chain_sum: terms from 2 to 50 and digits from 1 to 12, not {self.terms} and {self.digits}."
            )

    def options(self) -> dict[str, Any]:
        """Exactly `terms` numbers of `digits` digits."""
        return {f"{end}_{what}": getattr(self, what) for end in ("min", "max") for what in ("terms", "digits")}

    def difficulty(self, entry: Mapping[str, Any]) -> int:
        """The number of terms."""
        return int(entry["metadata"]["num_terms"])

    @property
    def config(self) -> Mapping[str, Any]:
        """Room for a worked solution."""
        return {"max_completion_length": 256}

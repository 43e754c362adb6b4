"""GSM8K (arXiv 2110.14168): word problems of primary school, 7473 to train and 1319 to test.

The difficulty of a problem is the number of calculations in its solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlkit.tasks.graded import HubTask


@dataclass(frozen=True)
class Gsm8k(HubTask):
    """GSM8K from the hub, or from a folder with the same columns (`question`, `answer`)."""

    kind: ClassVar[str] = "gsm8k"
    commit: ClassVar[str] = "740312add88f781978c0658806c59bc2815b9866"
    part: ClassVar[str | None] = "main"

    source: str = "openai/gsm8k"
    """Hub id, or a folder with a copy of the repository."""

    def question(self, row: Mapping[str, Any]) -> str:
        """The question."""
        return str(row["question"]).strip()

    def answer(self, row: Mapping[str, Any]) -> str:
        """What follows `####` in the solution, without commas."""
        return str(row["answer"]).rpartition("####")[2].strip().replace(",", "")

    def extra(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """`difficulty`: calculations in the solution (`<<48/2=24>>`)."""
        return {"difficulty": str(row["answer"]).count("<<")}

    @property
    def config(self) -> Mapping[str, Any]:
        """Room for a worked solution."""
        return {"max_completion_length": 512}

"""MATH (arXiv 2103.03874): problems of mathematics competitions, 7500 to train and 5000 to test, levels 1 to 5."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlkit.grading.answers import boxed
from rlkit.tasks.graded import HubTask


@dataclass(frozen=True)
class Math(HubTask):
    """MATH from the hub, or from a folder with the same columns (`problem`, `solution`, `level`, `type`)."""

    kind: ClassVar[str] = "math"
    commit: ClassVar[str] = "0530c78699ea5e8eb5530600900e1f328b48acad"

    source: str = "DigitalLearningGmbH/MATH-lighteval"
    """Hub id, or a folder with a copy of the repository."""

    def question(self, row: Mapping[str, Any]) -> str:
        """The problem."""
        return str(row["problem"]).strip()

    def answer(self, row: Mapping[str, Any]) -> str:
        """The content of the last box of the solution."""
        return (boxed(str(row["solution"])) or "").strip()

    def extra(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """`difficulty`: the level, 1 to 5, 0 where the data set has none; `subject`."""
        level = re.search(r"[0-9]", str(row.get("level", "")))
        return {"difficulty": int(level[0]) if level else 0, "subject": str(row.get("type", ""))}

    @property
    def config(self) -> Mapping[str, Any]:
        """Room for a worked solution."""
        return {"max_completion_length": 1024}

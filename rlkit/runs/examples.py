"""How often each example was solved while a run trained: one row per logging step and example.

A run stores this as its table `examples`; `rlkit.history` reads it. The text of this file is part of every run's key.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

NAME = "examples"
COLUMNS = ("step", "id", "rollouts", "right", "reward")
OTHERS = ("age", "expert")
"""Numbers by which a `rollout` seam says that the present policy did not draw a row: it is older, or an expert's."""


@dataclass
class Tally:
    """What is known of one example in one step."""

    rollouts: int = 0
    right: float = 0.0
    reward: float = 0.0
    scored: int = 0
    """Rollouts with a finite reward."""


class Examples:
    """Counts graded rollouts by optimiser step and example."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[int, str], Tally] = {}

    def add(
        self, step: int, rows: Sequence[Mapping[str, Any]], right: Sequence[float] | None, rewards: Sequence[float]
    ) -> None:
        """Count the rollouts of a generation batch.

        Args:
            step: the optimiser step that trains on them first.
            rows: the data-set row of each rollout.
            right: 1.0 where a rollout is exactly right; None where there are no gold answers.
            rewards: weighted rewards; NaN where unscorable.
        """
        marks = [math.nan] * len(rows) if right is None else right
        for row, mark, reward in zip(rows, marks, rewards, strict=True):
            tally = self._tallies.setdefault((step, name_of(row)), Tally())
            tally.rollouts += 1
            tally.right += mark
            if math.isfinite(reward):
                tally.reward, tally.scored = tally.reward + reward, tally.scored + 1

    def frame(self, logged: Sequence[int]) -> pd.DataFrame:
        """Rows `step, id, rollouts, right, reward`; `right` and `reward` are NaN where nothing is known.

        Args:
            logged: the steps at which the run logged: what was drawn since the one before is added up.
        """
        found: dict[tuple[int, str], Tally] = {}
        steps = sorted(set(logged))
        for (step, name), tally in self._tallies.items():
            place = bisect.bisect_left(steps, step)
            whole = found.setdefault((steps[place] if place < len(steps) else step, name), Tally())
            whole.rollouts, whole.right = whole.rollouts + tally.rollouts, whole.right + tally.right
            whole.reward, whole.scored = whole.reward + tally.reward, whole.scored + tally.scored
        rows = [
            (step, name, t.rollouts, t.right, t.reward / t.scored if t.scored else math.nan)
            for (step, name), t in sorted(found.items())
        ]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        return table if table["right"].isna().any() else table.astype({"right": "int64"})


def name_of(row: Mapping[str, Any]) -> str:
    """The column `id` as text; where there is none, a hash of the prompt that is the same in every process."""
    if (given := row.get("id")) is not None:
        return str(given)
    return "prompt-" + hashlib.sha256(repr(row["prompt"]).encode("utf-8")).hexdigest()[:12]


def drawn_now(drawn: Sequence[Mapping[str, Any]] | None, size: int) -> list[bool]:
    """Which rollouts the present policy drew.

    Args:
        drawn: what the method's `rollout` gave for each row; None where it has no such seam.
        size: number of rows.
    """
    if drawn is None:
        return [True] * size
    return [not any(row.get(name) for name in OTHERS) for row in drawn]

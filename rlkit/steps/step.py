"""`Step`: one optimiser step of a trainer as data, row by row and token by token.

No trainer and no model in here: a step can be saved, loaded, cut down and shown where nothing can be trained.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from rlkit.files import write_atomic
from rlkit.method import near

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""JSON has no NaN: it is saved as null."""
_SAVED = ("method", "trainer", "step", "seed", "options", "metrics", "notes", "rows")
DIGITS = 6
"""Significant digits of saved numbers."""

QUANTITIES = {
    "entropy": "entropy of the policy at the token (nats)",
    "advantage": "advantage: how much better than the baseline",
    "weight": "weight of the token in the loss",
    "ratio": "probability now over probability when it was drawn",
    "divergence": "divergence of student and teacher at the token (nats)",
    "coefficient": "push on the token's log-prob: above 0 the update makes it more likely",
    "loss": "the token's part of the loss",
    "logp": "log-prob of the token (nats)",
    "old_logp": "log-prob of the token when it was drawn (nats)",
    "teacher_logp": "log-prob of the token under the teacher (nats)",
}
"""What `StepRow.values` can hold, one number a completion token."""


@dataclass(frozen=True)
class StepRow:
    """One rollout of a step. T completion tokens, the end token included."""

    group: int
    """Number of its prompt within the step."""
    prompt: str
    completion: str
    prompt_ids: list[int]
    completion_ids: list[int]
    tokens: list[str]
    """T texts, one a token."""
    reward: float | None
    """None where no function could score it, and where nothing is rewarded (distillation)."""
    rollout: int | None = None
    """Its number within the group as it was drawn; None where that is its place among the rows."""
    rewards: dict[str, float | None] = field(default_factory=dict)
    """By reward function, where there are several."""
    advantage: Number = 0.0
    """Mean over its tokens."""
    counted: bool = True
    """False: the method has taken the row out of the batch."""
    trained: bool = True
    """Whether it went through the backward pass with a gradient."""
    grad_norm: float | None = None
    """Norm of the gradient of its part of the loss."""
    age: int | None = None
    """Optimiser steps since it was drawn; None for a fresh rollout."""
    values: dict[str, list[Number]] = field(default_factory=dict)
    """T numbers for each name of `QUANTITIES` that the trainer knows."""
    extras: dict[str, Any] = field(default_factory=dict)
    """Columns of the data set, such as `gold` and `id`, and numbers that came with the rollout."""


@dataclass(frozen=True)
class Step:
    """One optimiser step, seen without being taken."""

    method: str
    trainer: str
    """"rlvr" or "distill"."""
    step: int
    """Optimiser steps done before it."""
    seed: int
    options: dict[str, Any]
    """The method's options, and the TRL options that decide the loss."""
    metrics: dict[str, Number]
    """`loss`, `grad_norm` (before clipping) and what else the trainer logs of such a step."""
    rows: list[StepRow]
    notes: list[str] = field(default_factory=list)
    shown: str | None = field(default=None, compare=False)
    """The quantity that is shown first."""
    source: Any = field(default=None, compare=False, repr=False)
    """Where it came from, as long as that is in memory: what `rlkit.compare` needs."""

    @property
    def quantities(self) -> list[str]:
        """Names of the values that the tokens have, in the order of `QUANTITIES`."""
        have = {name for row in self.rows for name in row.values}
        return [name for name in QUANTITIES if name in have]

    def only(self, groups: int | Iterable[int], rollouts: int | None = None) -> Step:
        """Some groups of the step, and at most so many rollouts of each; the numbers stay those of the whole step.

        Args:
            groups: how many, from the first, or which.
            rollouts: of each group; None for all.
        """
        numbers = list(dict.fromkeys(row.group for row in self.rows))
        chosen = numbers[:groups] if isinstance(groups, int) else list(groups)
        if odd := [group for group in chosen if group not in numbers]:
            raise ValueError(f"There is no group {odd[0]} in this step; it has {len(numbers)}, from {numbers[0]} on.")
        rows = [row for number in chosen for row in [r for r in self.rows if r.group == number][:rollouts]]
        note = f"{len(rows)} of {len(self.rows)} rollouts are shown; loss and gradient are those of all."
        notes = self.notes if len(rows) == len(self.rows) else [*self.notes, note]
        return dataclasses.replace(self, rows=rows, notes=notes)

    def show(self, quantity: str) -> Step:
        """The same step with another quantity on its tokens first.

        Raises:
            ValueError: the step does not have it; near names are listed.
        """
        if quantity not in self.quantities:
            raise ValueError(f"This step has no {quantity!r}. {near(quantity, self.quantities)}")
        return dataclasses.replace(self, shown=quantity)

    def to_frame(self) -> pd.DataFrame:
        """One row a token: group, rollout, position, token, token_id and every quantity."""
        place = ("group", "rollout", "position", "token", "token_id")
        columns: dict[str, list[Any]] = {name: [] for name in (*place, *self.quantities)}
        for (group, number), row in zip(self.places, self.rows, strict=True):
            for t, (token, token_id) in enumerate(zip(row.tokens, row.completion_ids, strict=True)):
                for name, value in zip(place, (group, number, t, token, token_id), strict=True):
                    columns[name].append(value)
                for name in self.quantities:
                    columns[name].append(row.values[name][t] if name in row.values else None)
        return frame(columns, "token")

    def rows_frame(self) -> pd.DataFrame:
        """One row a rollout: what it is, its `length` in tokens, and its fields up to `age`."""
        plain = ("completion", "reward", "advantage", "counted", "trained", "grad_norm", "age")
        columns: dict[str, list[Any]] = {"group": [group for group, _ in self.places]}
        columns |= {"rollout": [number for _, number in self.places]}
        columns |= {name: [getattr(row, name) for row in self.rows] for name in plain}
        return frame({**columns, "length": [len(row.tokens) for row in self.rows]}, "completion")

    @property
    def places(self) -> list[tuple[int, int]]:
        """For each row its group and its number within it."""
        seen: dict[int, int] = {}
        found = []
        for row in self.rows:
            found.append((row.group, seen.get(row.group, 0) if row.rollout is None else row.rollout))
            seen[row.group] = seen.get(row.group, 0) + 1
        return found

    def to_dict(self) -> dict[str, Any]:
        """The step as plain JSON; numbers to 6 digits."""
        rows = [{f.name: getattr(row, f.name) for f in dataclasses.fields(row)} for row in self.rows]
        kept = {name: _plain(getattr(self, name)) for name in _SAVED if name != "rows"}
        return {"format": FORMAT, **kept, "rows": _plain(rows)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Step:
        """What `to_dict` gave.

        Raises:
            ValueError: no step, or one of another format.
        """
        from pydantic import TypeAdapter, ValidationError

        if not isinstance(saved, Mapping) or saved.get("format") != FORMAT:
            raise ValueError(f"This is no step that this version of rlkit can read (format {FORMAT}).")
        try:
            step = TypeAdapter(cls).validate_python({k: v for k, v in saved.items() if k in _SAVED})
        except (ValidationError, RecursionError) as error:
            raise ValueError(f"This step is damaged: {error!s:.300}") from None
        for row in step.rows:
            if {len(row.completion_ids), *map(len, row.values.values())} - {len(row.tokens)}:
                raise ValueError("This step is damaged: a row has other numbers of tokens and of values.")
        return step

    def save(self, path: str | Path) -> None:
        """Write the step as JSON, compressed if the name ends in .gz; the file is whole or not there."""
        text = json.dumps(self.to_dict(), ensure_ascii=True, allow_nan=False)  # lone surrogates have no UTF-8
        content = text.encode("ascii")
        write_atomic(Path(path), gzip.compress(content, mtime=0) if Path(path).suffix == ".gz" else content)

    @classmethod
    def load(cls, path: str | Path) -> Step:
        """Read what `save` wrote.

        Raises:
            ValueError: the file is damaged or no step.
            OSError: it cannot be read.
        """
        content = Path(path).read_bytes()
        try:
            saved = json.loads(gzip.decompress(content) if Path(path).suffix == ".gz" else content)
        except (OSError, EOFError, ValueError, zlib.error, RecursionError) as error:
            raise ValueError(f"{path} is no saved step, or damaged: {error}") from None
        return cls.from_dict(saved)

    def __repr__(self) -> str:
        from rlkit.steps.text import step_text

        return step_text(self, self.shown)

    def _repr_html_(self) -> str:
        from rlkit.steps.view import step_html

        return step_html(self, self.shown)


def frame(columns: Mapping[str, list[Any]], text: str) -> pd.DataFrame:
    """A data frame with one column of a model's texts, which may hold lone surrogates: pandas' own texts may not."""
    import pandas as pd

    texts = pd.Series(columns[text], dtype=object)
    return pd.DataFrame({name: texts if name == text else values for name, values in columns.items()})


def _plain(value: Any) -> Any:
    """Numbers to 6 digits, NaN and infinity as None; what JSON does not know by its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence | set):
        return [_plain(item) for item in value]
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)

"""`rlkit doctor`: what would make a run useless, found in seconds before it costs hours.

Data: does every gold answer grade itself, do splits share prompts, can everything be scored, what does a constant get?
Model: are prompts in its form, do they fit, does it stop, in how many groups would all rewards be equal?
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlkit.method import near
from rlkit.tasks.base import SPLITS, Task, get_task

if TYPE_CHECKING:
    from datasets import Dataset

STATES = ("green", "yellow", "red", "skipped")
SHOWN = 10
"""Rows named in a finding; `--json` has all."""


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    state: str
    """green: well; yellow: look at it; red: do not start; skipped."""
    found: str
    fix: str = ""
    rows: list[str] = field(default_factory=list)
    """Ids of the rows that it is about."""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"A state is one of {', '.join(STATES)}, not {self.state!r}.")


@dataclass(frozen=True)
class Report:
    """All findings."""

    checks: list[Check]

    @property
    def exit_code(self) -> int:
        """1 if anything is red, else 0."""
        return int(any(check.state == "red" for check in self.checks))

    def text(self) -> str:
        """Plain text, one finding a line, its fix below."""
        wide = max((len(check.name) for check in self.checks), default=0)
        lines: list[str] = []
        for check in self.checks:
            named = f": {', '.join(check.rows[:SHOWN])}" if check.rows else ""
            more = f" and {len(check.rows) - SHOWN} more (--json lists all)" if len(check.rows) > SHOWN else ""
            lines.append(f"{check.state:<8}{check.name:<{wide}}  {check.found}{named}{more}")
            lines += [f"{'':<{8 + wide}}  fix: {check.fix}"] if check.fix else []
        return "\n".join(lines)

    def json(self) -> str:
        """All findings as JSON."""
        told = {"exit_code": self.exit_code, "checks": [dataclasses.asdict(check) for check in self.checks]}
        return json.dumps(told, indent=2, ensure_ascii=False)


def diagnose(
    task: str | Task | Dataset,
    model: Any = None,
    *,
    rows: int = 1000,
    groups: int = 32,
    group_size: int = 8,
    seed: int = 0,
    progress: bool = False,
) -> Report:
    """Check a task and, with it, a model.

    Args:
        task: a task by name, a `Task` or a data set.
        model: a base by name, a folder, a hub id or a model; default: the tiny base of the task's name, if any.
        rows: how many rows of each split are read.
        groups: prompts that the model is tried on.
        group_size: rollouts of each.
        seed: of rows and rollouts.
        progress: show a progress bar while golds are graded.

    Raises:
        ValueError: an unknown task, or counts out of range.
        OSError: the data set or the model cannot be read.
    """
    if min(rows, groups) < 1 or group_size < 2:
        raise ValueError(f"rows, groups start at 1, group_size at 2; not {rows}, {groups}, {group_size}.")
    from rlkit.doctor.data import data_checks
    from rlkit.doctor.model import form_checks, rollout_checks

    the_task = get_task(task)
    parts = _read(the_task, rows, seed)
    checks = [*data_checks(the_task, parts, progress)]
    policy, tokenizer = _load(model, the_task)
    if tokenizer is None:
        checks.append(
            Check("model", "skipped", "no model was named, so prompts and rollouts were not tried", "--model")
        )
    else:
        checks += form_checks(the_task, parts, policy, tokenizer)
        if not any(check.state == "red" for check in checks):
            checks += rollout_checks(the_task, parts["train"], policy, tokenizer, groups, group_size, seed)
    return Report(checks)


def _read(task: Task, rows: int, seed: int) -> dict[str, Dataset]:
    found = {}
    for split in SPLITS:
        try:
            found[split] = task.dataset(split, rows, seed=seed)
        except ValueError:
            if split == "train":
                raise
    return found


def _load(model: Any, task: Task) -> tuple[Any, Any]:
    from rlkit.models import base_names, load_model

    if model is None:
        kind = getattr(task, "kind", "")
        if kind not in base_names():
            return None, None
        model = kind
    return load_model(model)


def columns_of(texts: Sequence[str]) -> dict[str, str]:
    """`prompt=question` as a column map.

    Raises:
        ValueError: not of this form, or a role that does not exist.
    """
    roles = ("prompt", "gold")
    found = {}
    for text in texts:
        role, sign, column = text.partition("=")
        if not sign or role not in roles:
            raise ValueError(f"--column wants prompt=NAME or gold=NAME, not {text!r}. {near(role, roles)}")
        found[role] = column
    return found

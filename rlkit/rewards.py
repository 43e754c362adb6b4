"""Rewards that work on any task, and how a reward is named: by the task's name for it, as a function, or as a spec.

A spec is an object with `bind(task, seed) -> reward function`: it says what to do before task and seed are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rlkit.method import near
from rlkit.tasks.base import Reward, Task


@runtime_checkable
class RewardSpec(Protocol):
    """Something that becomes a reward function when task and seed are known."""

    def bind(self, task: Task, seed: int) -> Reward:
        """The reward function of a run."""
        ...


def resolve_reward(spec: str | RewardSpec | Callable[..., Any] | None, task: Task, seed: int) -> Reward:
    """The reward function that `spec` means: None is the task's default, a name one of the task's, a function itself.

    Raises:
        ValueError: the task has no reward of that name, or no default.
        TypeError: `spec` is none of these.
    """
    if spec is None:
        spec = task.default_reward
    if isinstance(spec, str):
        if spec not in task.rewards:
            what = f"no reward {spec!r}" if spec else "no default reward"
            hint = near(spec, list(task.rewards)) if task.rewards else "Pass reward= with a function of your own."
            raise ValueError(f"Task {task.name!r} has {what}. {hint}")
        return task.rewards[spec]
    if isinstance(spec, RewardSpec):
        return spec.bind(task, seed)
    if callable(spec):
        return spec
    raise TypeError(f"A reward is a name, a function or an object with bind(task, seed), not {type(spec).__name__}.")


@dataclass(frozen=True)
class Noisy:
    """Rare large outliers on top of another reward: each rollout's reward gets `size` added with probability `rate`.

    Whether a rollout is hit depends on seed, step, prompt, completion and row only: a resumed run sees the same noise.

    Raises:
        ValueError: `rate` is no probability.
    """

    base: str | RewardSpec | Callable[..., Any] = "graded"
    """The reward under the noise."""
    rate: float = 0.1
    """Share of rollouts that are hit."""
    size: float = 5.0
    """What is added, in units of the reward; may be negative."""
    two_sided: bool = False
    """Half of the outliers get minus `size`."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0:
            raise ValueError(f"Noisy: rate is a probability, not {self.rate}.")

    def bind(self, task: Task, seed: int) -> Reward:
        """The noisy reward function of a run."""
        clean = resolve_reward(self.base, task, seed)

        def noisy(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
            values = clean(prompts=prompts, completions=completions, **columns)
            step = getattr(columns.get("trainer_state"), "global_step", 0)
            rows = enumerate(zip(prompts, completions, values, strict=True))
            return [None if v is None else v + self._outlier(seed, step, p, c, i) for i, (p, c, v) in rows]

        noisy.__name__ = f"noisy_{getattr(clean, '__name__', 'reward')}"
        return noisy

    def _outlier(self, seed: int, step: int, prompt: Any, completion: Any, row: int) -> float:
        digest = hashlib.sha256(repr((seed, step, prompt, completion, row)).encode("utf-8")).digest()
        if int.from_bytes(digest[:6], "big") / 2**48 >= self.rate:
            return 0.0
        return -self.size if self.two_sided and digest[6] % 2 else self.size


def math(
    completions: Sequence[Any],
    gold: Sequence[Any] | None = None,
    solution: Sequence[Any] | None = None,
    answer: Sequence[Any] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """1.0 for the right answer, 0.0 for another, None (left out of its group) where the gold is empty: `rlkit.grade`.

    The gold is the column `gold`, else `solution` (TRL's name), else `answer`. Two shares are logged where they are not
    0: golds that are not mathematics, and formulas that ran into the limits of time and memory.

    Raises:
        ValueError: the data have none of these columns.
    """
    from rlkit.grading.grader import grade_batch

    golds = next((column for column in (gold, solution, answer) if column is not None), None)
    if golds is None:
        raise ValueError(f"The reward 'math' needs a column gold, solution or answer; there are {sorted(columns)}.")
    grades = grade_batch(completions, golds)
    for name, rows in (("gold_as_text", grades.as_text), ("grading_limited", grades.limited)):
        if rows and log_metric is not None:
            log_metric(name, len(rows) / len(grades))
    return list(grades)

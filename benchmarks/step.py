"""Time per training step: rlkit's trainer against stock TRL, at the same settings and on the same rollouts.

Two processes, one for each trainer, take steps in turn (`benchmarks/turns.py`). Both start from the same base and seed,
so step i of one is step i of the other and their ratio is taken step by step.

What is timed is the whole cycle of a step: data, generation, rewards, loss, optimiser, logging. The ratio is also taken
of processor time, which other programs on the machine disturb less than the clock on the wall.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.readme import Report, about
from benchmarks.turns import CPU, WALL, WARM_UP, Side, in_turn, shown


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    reward: str
    """A reward of the task; "spread" is graded plus a little noise, so that no row can be left out."""
    task: str = "chain"
    skip: bool = True
    target: float | None = None
    """Largest ratio that we want."""
    model: str = "chain"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What differs from preset tiny."""

    @property
    def function(self) -> Any:
        """The reward as a trainer takes it."""
        from rlkit.tasks.base import get_task

        return spread(get_task(self.task).rewards["graded"]) if self.reward == "spread" else self.reward


CASES = (
    Case("`exact` reward, sums of 5 terms", "exact", task="chain(terms=5)", target=0.85),
    Case("`exact` reward", "exact"),
    Case("`graded` reward", "graded"),
    Case("`graded` with noise: no row can be left out", "spread", target=0.9),
    Case("leaving rows out turned off", "exact", skip=False),
)


def spread(graded: Callable[..., list[float]]) -> Callable[..., list[float]]:
    """`graded` plus a number under .001 that differs from row to row."""

    def reward(completions: Sequence[str], **columns: Any) -> list[float]:
        values = graded(completions=completions, **columns)
        return [value + 1e-3 * (i * 37 % 101) / 101 for i, value in enumerate(values)]

    return reward


def build(case: Case, stock: bool, steps: int) -> Any:
    """A trainer of preset tiny: 8 prompts x 8 rollouts, one torch thread."""
    import rlkit

    settings = {"max_steps": steps, "train_size": 1024, "skip_zero_advantage": case.skip, **case.settings}
    made = rlkit.trainer("grpo", preset="tiny", model=case.model, task=case.task, reward=case.function, **settings)
    if stock:
        from trl import GRPOTrainer

        from rlkit.models import load_model

        policy, tokenizer = load_model(case.model)  # a model of its own: the other trainer has patched the first
        functions = [func.func for func in made.reward_funcs]
        made = GRPOTrainer(policy, functions, made.args, made.train_dataset, processing_class=tokenizer)
    return made


def sides(case: Any, steps: int, make: Callable[..., Any]) -> list[Side]:
    """Stock TRL, then rlkit, from `make(case, stock, steps)`."""
    return [Side(make, (case, stock, steps + WARM_UP)) for stock in (True, False)]


def measure(case: Any, steps: int, make: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Median milliseconds of both, quartiles of the ratios, and how far loss and gradient differ."""
    stock, ours = ran = in_turn(sides(case, steps, make or build), steps)
    return {
        "case": case,
        "milliseconds": [1000 * side.median(WALL) for side in ran],
        "wall": ours.over(stock, WALL),
        "cpu": ours.over(stock, CPU),
        "left_out": statistics.mean(line.get("rows_left_out", 0.0) for line in ours.log[WARM_UP:]),
        "apart": ours.apart(stock),
        "steps": steps,
    }


def cells(row: dict[str, Any]) -> list[str]:
    """Milliseconds, ratios and what is wanted, as they stand in a table."""
    target = row["case"].target
    wanted = "" if target is None else f"at most {target}"
    return [*(f"{ms:.0f}" for ms in row["milliseconds"]), shown(row["wall"]), shown(row["cpu"]), wanted]


COLUMNS = ["stock, ms", "rlkit, ms", "ratio", "ratio of CPU time", "wanted"]


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *rows))


def report(quick: bool) -> Report:
    """Measure every case."""
    steps = 6 if quick else 40
    found = [measure(case, steps) for case in CASES]
    lines = [[row["case"].name, f"{row['left_out']:.0%}", *cells(row)] for row in found]
    apart = max(row["apart"] for row in found)
    how = f"Preset tiny, {steps} steps after {WARM_UP} to warm up; {about()}. "
    how += f"Loss and grad_norm of the two differ by at most {apart:.0e} over all steps."
    summary = [(f"a step, to stock TRL's: {row['case'].name}", shown(row["cpu"], 2)) for row in found[:4:3]]
    return Report(f"{markdown(['8 prompts x 8 rollouts', 'rows left out', *COLUMNS], lines)}\n\n{how}", summary)

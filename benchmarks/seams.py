"""What a seam costs: a training step with a hook that changes nothing, against a step with no hook.

One trainer, whose method is another one at every step. Learning rate 0, eight prompts in a fixed order and random state
set back make every step the same step, so that times differ by the hook and by chance only. CPU seconds are counted,
which other programs on the machine do not add to. The reward differs from row to row and all rows are trained.
"""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import time
from typing import Any

from benchmarks.readme import Report, about

WARM_UP = 3
WANTED = 0.02
"""Largest overhead of a hook that needs no forward of its own."""
PLAIN = "no hook"


def clip(ctx: Any) -> Any:
    """TRL's clipped ratio."""
    ratio = (ctx.logps - ctx.old_logps).exp()
    return (ratio * ctx.advantages).minimum(ratio.clamp(0.8, 1.2) * ctx.advantages)


def hooks() -> dict[str, dict[str, Any]]:
    """Fields of `Method` for each row of the table; each changes nothing."""
    import torch

    from rlkit.methods.grpo import standardized

    light: dict[str, Any] = {
        "sampler": lambda ctx, dataset, rows: [(row, ctx.group_size) for row in rows],
        "rollout": lambda ctx, rows, trainer: trainer.generate_rows(rows),
        "advantage": lambda ctx: standardized(ctx.rewards),
        "batch": lambda trainer, batch: batch,
        "token_weight": lambda ctx: torch.ones_like(ctx.logps),
        "surrogate": clip,
    }
    heavy = {"needs": {"needs": frozenset({"logps"})}, "pooled": {"surrogate": clip, "pooled": True}}
    return {**{name: {name: hook} for name, hook in light.items()}, "all of these": light, **heavy}


def switch(trainer: Any, method: Any) -> None:
    """Make the trainer run another method from the next step on."""
    trainer.method = method
    trainer.draws_rows = method.rollout is not None
    trainer.rollout_func = trainer._rollout if trainer.draws_rows else None
    trainer.has_hooks = method.name != PLAIN


def measure(steps: int) -> list[dict[str, Any]]:
    """Median milliseconds and overhead, with its quartiles, of every hook."""
    from transformers import PrinterCallback

    import rlkit
    from benchmarks.step import spread
    from rlkit.tasks.base import get_task

    methods = [rlkit.Method(name, **fields) for name, fields in {PLAIN: {}, "no hook, again": {}, **hooks()}.items()]
    fixed = {"learning_rate": 0.0, "train_size": 8, "shuffle_dataset": False, "skip_zero_advantage": False}
    reward = spread(get_task("chain").rewards["graded"])
    rounds = steps + WARM_UP
    trainer = rlkit.trainer("grpo", preset="tiny", reward=reward, max_steps=rounds * len(methods) + 1, **fixed)
    trainer.remove_callback(PrinterCallback)
    clock = make_clock(trainer, methods)
    trainer.add_callback(clock)
    trainer.train()
    lines = [(line["num_tokens"], line["reward"]) for line in trainer.state.log_history if "loss" in line]
    tokens = [after[0] - before[0] for before, after in itertools.pairwise(lines)]
    if len(set(tokens)) > 1 or len({reward for _, reward in lines}) > 1:
        raise RuntimeError("The steps differ: their times cannot be compared.")
    plain = clock.seconds[PLAIN][WARM_UP:]
    return [row(method.name, clock.seconds[method.name][WARM_UP:], plain) for method in methods]


def make_clock(trainer: Any, methods: list[Any]) -> Any:
    """A callback that times each step, every method once a round in a new order, and starts them all the same way."""
    import torch
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.seconds: dict[str, list[float]] = {method.name: [] for method in methods}
            self.due: list[Any] = []
            self.running, self.started = "", 0.0
            self.state = torch.get_rng_state()

        def on_step_begin(self, args: Any, state: Any, *more: Any, **about: Any) -> None:
            if self.running:
                self.seconds[self.running].append(time.thread_time() - self.started)
            if not self.due:
                self.due = random.Random(state.global_step).sample(methods, len(methods))
                gc.collect()
                gc.freeze()
            method = self.due.pop()
            switch(trainer, method)
            torch.set_rng_state(self.state)
            self.running, self.started = method.name, time.thread_time()

    return Clock()


def row(name: str, seconds: list[float], plain: list[float]) -> dict[str, Any]:
    """One line of the table."""
    low, middle, high = statistics.quantiles([a / b - 1 for a, b in zip(seconds, plain, strict=True)], n=4)
    ms = 1000 * statistics.median(seconds)
    return {"name": name, "ms": ms, "overhead": middle, "quartiles": (low, high), "steps": len(seconds)}


def table(found: list[dict[str, Any]]) -> str:
    """Markdown of all cases."""
    lines = ["| hook that changes nothing | CPU ms a step | overhead (quartiles) | wanted |", "|---|---|---|---|"]
    for case in found:
        name, (low, high) = case["name"], case["quartiles"]
        forward = name in ("needs", "pooled")
        wanted = "one more forward" if forward else "" if "no hook" in name else f"at most {WANTED:.0%}"
        over = "" if name == PLAIN else f"**{case['overhead']:+.1%}** ({low:+.1%} to {high:+.1%})"
        label = name if " " in name else f"`{name}`"
        lines.append(f"| {label} | {case['ms']:.1f} | {over} | {wanted} |")
    how = f"Preset tiny, 8 prompts x 8 rollouts, {found[0]['steps']} steps of each after {WARM_UP} to warm up; "
    how += f"{about()}. "
    return "\n".join([*lines, "", f"{how}`no hook, again` shows what chance adds."])


def report(quick: bool) -> Report:
    """Measure every seam."""
    found = measure(10 if quick else 60)
    every = next(case for case in found if case["name"] == "all of these")
    low, high = every["quartiles"]
    summary = [("hooks that change nothing, six at once", f"{every['overhead']:+.1%} ({low:+.1%} to {high:+.1%})")]
    return Report(table(found), summary)

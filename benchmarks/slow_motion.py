"""What slow motion costs on the tiny base: a preview, a comparison, a recorded step, the size of what is shown."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.readme import Report, about

COMPARED = ("grpo", "dr_grpo", "mc_grpo", "rloo")
LIMITS = {"preview": "2 s", "compare": "5 s", "page": "300 kB"}


def seconds(do: Callable[[], Any], rounds: int) -> float:
    """Median of CPU seconds, after one call to warm up."""
    do()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        do()
        found.append(time.process_time() - start)
    return statistics.median(found)


def step_seconds(record: tuple[int, ...]) -> float:
    """CPU seconds of a training step of `mc_grpo` with the graded reward; the first steps warm up."""
    import rlkit

    trainer = rlkit.trainer("mc_grpo", preset="tiny", reward="graded", max_steps=24, record_steps=record)
    start = time.process_time()
    trainer.train()
    return (time.process_time() - start) / 24


def measure(rounds: int) -> list[tuple[str, str, str]]:
    """(what, measured, wanted)."""
    import rlkit

    trainer = rlkit.trainer("mc_grpo", preset="tiny", reward="graded")
    step = trainer.preview()
    one = step_seconds(())
    every = step_seconds(tuple(range(24)))
    full, light = (seconds(lambda on=on: trainer.preview(row_gradients=on), rounds) for on in (True, False))
    compared = seconds(lambda: rlkit.compare(step, COMPARED), min(3, rounds))
    page = len(step._repr_html_().encode())

    def cost(value: float) -> str:
        return f"{1000 * value:.0f} ms, {value / one:.1f} training steps"

    return [
        ("a training step", f"{1000 * one:.0f} ms", ""),
        ("preview", cost(full), f"under {LIMITS['preview']}"),
        ("preview without the norms of rows", cost(light), ""),
        (f"compare, {len(COMPARED)} methods", cost(compared), f"under {LIMITS['compare']}"),
        ("a training step that is recorded", cost(every), ""),
        (f"page of a step of {len(step.rows)} rollouts", f"{page / 1000:.0f} kB", f"under {LIMITS['page']}"),
    ]


def table(rows: list[tuple[str, str, str]], rounds: int) -> str:
    """As Markdown."""
    lines = ["| what | CPU time, size | wanted |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([*lines, "", f"`mc_grpo`, preset tiny, graded reward; median of {rounds}; {about()}."])


def report(quick: bool) -> Report:
    """Measure."""
    rounds = 2 if quick else 7
    rows = measure(rounds)
    return Report(table(rows, rounds), [(f"slow motion: {what}", cost) for what, cost, _ in rows[1:4:2]])

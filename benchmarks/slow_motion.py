"""What slow motion costs on the tiny base: a preview, a comparison, a recorded step, the size of what is shown.

Run from the root of the checkout:

    python -m benchmarks.slow_motion           # prints the table and writes it into benchmarks/README.md
    python -m benchmarks.slow_motion --dry
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.readme import about, write

ROUNDS = 7
COMPARED = ("grpo", "dr_grpo", "mc_grpo", "rloo")
LIMITS = {"preview": "2 s", "compare": "5 s", "page": "300 kB"}


def seconds(do: Callable[[], Any], rounds: int = ROUNDS) -> float:
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


def measure() -> list[tuple[str, str, str]]:
    """(what, measured, wanted)."""
    import rlkit

    trainer = rlkit.trainer("mc_grpo", preset="tiny", reward="graded")
    step = trainer.preview()
    one = step_seconds(())
    every = step_seconds(tuple(range(24)))
    full, light = (seconds(lambda on=on: trainer.preview(row_gradients=on)) for on in (True, False))
    compared = seconds(lambda: rlkit.compare(step, COMPARED), 3)
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


def table(rows: list[tuple[str, str, str]]) -> str:
    """As Markdown."""
    lines = ["| what | CPU time, size | wanted |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([*lines, "", f"`mc_grpo`, preset tiny, graded reward; median of {ROUNDS}; {about()}."])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="What slow motion costs.")
    parser.add_argument("--dry", action="store_true", help="print only")
    given = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    text = table(measure())
    print(text)
    if not given.dry:
        write("slow_motion", text)


if __name__ == "__main__":
    main()

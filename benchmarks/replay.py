"""What a replay buffer costs: time a step, memory a token, and operations against the number of rows.

A step of replay is taken apart by timing its parts from outside: cutting rows out of the batch, storing, drawing,
padding them together again, and scoring the fresh rows under the policy that drew them (one forward). They are set
beside what the replayed rows themselves cost: the same step without them, subtracted. CPU seconds, one thread.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.readme import Report, about

WARM_UP = 8
SETTINGS = {"prompts_per_step": 2, "num_generations": 8, "train_size": 1024}
"""16 rollouts a step."""
REPLAY = {"buffer": 512, "repeat": 4}
"""64 rows a step: 48 of them old."""
PARTS = {
    "cut rows out of the batch": ("rlkit.methods.replay", "cut"),
    "draw old rows": ("rlkit.methods.buffer", "ReplayBuffer.draw"),
    "store fresh rows": ("rlkit.methods.buffer", "ReplayBuffer.add"),
    "evict": ("rlkit.methods.buffer", "ReplayBuffer.shrink"),
    "pad rows together": ("rlkit.methods.replay", "join"),
    "score fresh rows": ("rlkit.trainers.tools", "Tools.score"),
}
WANTED = 0.1
SIZES = (100, 1_000, 10_000, 100_000)


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """CPU seconds spent so far in each part."""
    import importlib

    spent: dict[str, float] = defaultdict(float)
    put_back = []
    for name, (module, path) in PARTS.items():
        owner: Any = importlib.import_module(module)
        *outer, last = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        put_back.append((owner, last, getattr(owner, last)))
        setattr(owner, last, _clocked(getattr(owner, last), name, spent))
    try:
        yield spent
    finally:
        for owner, last, original in put_back:
            setattr(owner, last, original)


def _clocked(function: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        start = time.process_time()
        try:
            return function(*args, **named)
        finally:
            spent[name] += time.process_time() - start

    return call


def train(method: str, steps: int, **options: Any) -> tuple[Any, list[float], dict[str, float]]:
    """The trainer, CPU milliseconds of each step after warming up, and of each part in those steps together."""
    from transformers import PrinterCallback, TrainerCallback

    import rlkit

    marks: list[tuple[float, dict[str, float]]] = []
    with timed() as spent:

        class Clock(TrainerCallback):
            def on_step_end(self, *args: Any, **about: Any) -> None:
                marks.append((time.process_time(), dict(spent)))

        made = rlkit.trainer(method, preset="tiny", max_steps=steps + WARM_UP, **{**SETTINGS, **options})
        made.remove_callback(PrinterCallback)
        made.add_callback(Clock())
        made.train()
    marks = marks[WARM_UP - 1 :]
    taken = [1000 * (b[0] - a[0]) for a, b in itertools.pairwise(marks)]
    parts = {name: 1000 * (marks[-1][1].get(name, 0.0) - marks[0][1].get(name, 0.0)) for name in PARTS}
    return made, taken, parts


def operations(size: int, rounds: int = 2000) -> tuple[float, float]:
    """Microseconds to store a row in a full buffer, which makes one leave, and to draw a batch of 64."""
    from rlkit.methods.buffer import ReplayBuffer

    buffer, rng = ReplayBuffer(), random.Random(0)
    for i in range(size):
        buffer.add({"prompt": str(i // 8), "born": i // 64, "right": i % 3 == 0})
    best = [float("inf")] * 2
    for _ in range(5):
        start = time.process_time()
        for i in range(rounds):
            buffer.add({"prompt": str((size + i) // 8), "born": size + i, "right": i % 3 == 0})
            buffer.shrink(size, delta=0.2)
        middle = time.process_time()
        for _ in range(rounds // 20):
            buffer.draw(64, rng)
        end = time.process_time()
        found = ((middle - start) / rounds, (end - middle) / (rounds // 20))
        best = [min(a, b) for a, b in zip(best, found, strict=True)]
    return best[0] * 1e6, best[1] * 1e6


def memory(buffer: Any) -> tuple[float, float, float]:
    """Bytes of numbers, and with Python's objects around them, for each stored completion token; tokens a row."""
    numbers = whole = tokens = 0
    for row in buffer:
        tokens += len(row["completion_ids"])
        for value in row.values():
            own = value.numel() * value.element_size() if hasattr(value, "numel") else 0
            numbers += own
            whole += sys.getsizeof(value) + own + (200 if own else 0)  # a tensor's storage and shape, about
    return numbers / tokens, whole / tokens, tokens / len(buffer)


def report(quick: bool) -> Report:
    """Measure a step apart, and the buffer alone."""
    steps = 10 if quick else 60
    _, plain, _ = train("grpo", steps)
    trainer, replay, parts = train("replay_uniform", steps, **REPLAY)
    step, without = statistics.median(replay), statistics.median(plain)
    of_parts = {name: value / len(replay) for name, value in parts.items()}
    overhead = sum(of_parts.values())
    rows = step - without - overhead
    lines = ["| part of a step | CPU ms | share of what the replayed rows cost |", "|---|---|---|"]
    lines += [f"| {name} | {ms:.2f} | {ms / rows:.1%} |" for name, ms in of_parts.items()]
    buffer_alone = overhead - of_parts["score fresh rows"]
    wanted = f"(wanted: at most {WANTED:.0%})"
    lines += [
        f"| **buffer, without scoring** | {buffer_alone:.2f} | **{buffer_alone / rows:.1%}** {wanted} |",
        f"| **all of these** | {overhead:.2f} | **{overhead / rows:.1%}** |",
        f"| the 48 replayed rows themselves | {rows:.1f} | |",
        f"| step of 16 fresh rows, no replay | {without:.1f} | |",
        f"| step with replay | {step:.1f} | |",
    ]
    numbers, whole, length = memory(trainer.method.state[0].buffer)
    lines += ["", "| rows in the buffer | store one, one leaves, µs | draw 64, µs |", "|---|---|---|"]
    lines += [f"| {size:,} | {one:.1f} | {many:.0f} |" for size in SIZES for one, many in [operations(size)]]
    lines += [
        "",
        f"A stored completion token takes {numbers:.0f} bytes of numbers, {whole:.0f} with Python's objects around "
        f"them (rows of {length:.0f} tokens; longer rows take less a token).",
        "",
        f"Preset tiny, 16 rollouts and 64 trained rows a step, {len(replay)} steps after {WARM_UP} to warm up; "
        f"{about()}.",
    ]
    summary = [("a replay buffer, of what the rows it gives cost", f"{buffer_alone / rows:.1%}")]
    return Report("\n".join(lines), summary)

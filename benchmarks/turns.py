"""Training loops that take steps in turn, each in a process of its own: while one works the others wait.

Every step starts from its number as random seed, so that loops with equal weights and prompts draw equal rollouts, and
step i of one is step i of the others: ratios are taken step by step, and what else the machine does falls on all.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

WARM_UP = 5
IMPORTS = (
    "torch",
    "transformers.generation",
    "transformers.models.llama.modeling_llama",
    "datasets",
    "scipy.stats",
    "trl.trainer.grpo_trainer",
    "trl.trainer.distillation_trainer",
    "rlkit.trainers.rlvr",
    "rlkit.trainers.distill",
)
"""Done once for all sides, before memory is counted; processes start with them where the system can fork."""
WALL, CPU = 0, 1
"""Which clock."""
Quartiles = tuple[float, float, float]


@dataclass(frozen=True)
class Side:
    """One of the loops that are compared."""

    make: Callable[..., Any]
    """Gives a trainer, or an iterator that does a step for each item: a dict with at least loss and grad_norm."""
    given: tuple[Any, ...] = ()


@dataclass
class Ran:
    """What a side did, warm-up left out."""

    seconds: list[tuple[float, float]]
    """(wall, CPU) of each step."""
    log: list[dict[str, Any]] = field(default_factory=list)
    """What was logged at each step, warm-up included."""
    memory: int = 0
    """Peak of resident bytes, less those resident after the imports and a step of a toy."""
    built: float = 0.0
    """CPU seconds to build it, before its first step."""

    def median(self, clock: int) -> float:
        """Seconds of a step."""
        return statistics.median(step[clock] for step in self.seconds)

    def over(self, other: Ran, clock: int) -> Quartiles:
        """Quartiles of this side's time a step as a multiple of the other's."""
        return quartiles([a[clock] / b[clock] for a, b in zip(self.seconds, other.seconds, strict=True)])

    def apart(self, other: Ran) -> float:
        """Largest difference in loss and grad_norm over all steps."""
        pairs = list(zip(self.log, other.log, strict=True))
        return max(abs(a[name] - b[name]) for a, b in pairs for name in ("loss", "grad_norm"))


def quartiles(values: Sequence[float]) -> Quartiles:
    """Low, median, high."""
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def shown(found: Quartiles, digits: int = 3) -> str:
    """As in the tables: `0.903 (0.786 to 0.973)`."""
    low, middle, high = (f"{value:.{digits}f}" for value in found)
    return f"{middle} ({low} to {high})"


def in_turn(sides: Sequence[Side], steps: int, warm_up: int = WARM_UP, threads: bool = False) -> list[Ran]:
    """Train all sides for `warm_up + steps` steps; the order is another at each.

    With `threads` they are threads of this process: for many sides, whose memory is then not told apart.
    """
    ends, workers = [], []
    for side in sides:
        ours, worker = start(side, steps + warm_up, threads)
        ours.recv()  # it has been built
        ends.append(ours)
        workers.append(worker)
    gc.freeze()  # what exists by now is no garbage, and would be gone through in steps of whose turn it is
    seconds: list[list[tuple[float, float]]] = [[] for _ in sides]
    for step in range(steps + warm_up):
        for side in random.Random(step).sample(range(len(sides)), len(sides)):
            ends[side].send("go")
            seconds[side].append(ends[side].recv())
    ends_with = [end.recv() for end in ends]
    for worker in workers:
        worker.join()
    return [Ran(taken[warm_up:], *last) for taken, last in zip(seconds, ends_with, strict=True)]


def start(side: Side, steps: int, thread: bool) -> tuple[Connection, Any]:
    """Start a side; gives this end of its pipe. The other end is closed when it breaks off: an error here."""
    if thread:
        ours, theirs = multiprocessing.Pipe()
        worker: Any = threading.Thread(target=work, args=(side, steps, theirs), daemon=True)
        worker.start()
        return ours, worker
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    if sys.platform == "linux":
        context.set_forkserver_preload([*IMPORTS])
    ours, theirs = context.Pipe()
    worker = context.Process(target=work, args=(side, steps, theirs), daemon=True)
    worker.start()
    theirs.close()
    return ours, worker


class Turn:
    """A worker's end: waits for its turn, reports what the step before took."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.step, self.started = pipe, 0, (0.0, 0.0)

    def tell(self) -> None:
        """The step is over."""
        wall, cpu = self.started
        self.pipe.send((time.perf_counter() - wall, time.process_time() - cpu))

    def begin(self) -> None:
        """Report, wait, start the clocks."""
        import torch

        self.tell()
        self.pipe.recv()
        torch.manual_seed(self.step)
        self.step += 1
        self.started = (time.perf_counter(), time.process_time())


def work(side: Side, steps: int, pipe: Connection) -> None:
    """What a process does: build, train in turn, send what was logged and the peak of memory."""
    import torch

    torch.set_num_threads(1)
    for name in IMPORTS:
        importlib.import_module(name)
    touch()
    before, started = resident("VmRSS"), time.process_time()
    try:
        made, turn = side.make(*side.given), Turn(pipe)
        built = time.process_time() - started
        log = trained(made, turn) if hasattr(made, "train") else iterated(made, turn, steps)
        pipe.send((log, resident("VmHWM") - before, built))
    finally:
        pipe.close()


def touch() -> None:
    """A step of a toy, so that the libraries' own pages are in memory before it is counted."""
    import torch

    from rlkit.bases import architecture, get_recipe, tokenizer

    recipe = replace(get_recipe("chain"), width=8, layers=1)
    model = architecture(recipe, tokenizer(recipe.characters))
    ids = model.generate(torch.ones(1, 1, dtype=torch.long), max_new_tokens=2, do_sample=True)
    model(input_ids=ids, labels=ids).loss.backward()
    torch.optim.AdamW(model.parameters(), fused=True).step()


def iterated(loop: Iterator[dict[str, Any]], turn: Turn, steps: int) -> list[dict[str, Any]]:
    """A loop that does a step for each item."""
    log = []
    for _ in range(steps):
        turn.begin()
        log.append(next(loop))
    turn.tell()
    return log


def trained(trainer: Any, turn: Turn) -> list[dict[str, Any]]:
    """A trainer, from the beginning of one step to that of the next: data, rollouts, loss, optimiser, logging."""
    from transformers import PrinterCallback, TrainerCallback

    class InTurn(TrainerCallback):
        def on_step_begin(self, *args: Any, **about: Any) -> None:
            turn.begin()

        def on_train_end(self, *args: Any, **about: Any) -> None:
            turn.tell()

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(InTurn())
    trainer.train()
    return [line for line in trainer.state.log_history if "loss" in line]


def resident(which: str) -> int:
    """Bytes of this process in memory, now (`VmRSS`) or at most so far (`VmHWM`); 0 where Linux does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{which}:")), 0)

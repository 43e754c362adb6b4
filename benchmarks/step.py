"""Time per training step: rlkit's trainer against stock TRL, at the same settings and on the same rollouts.

Two processes, one for each trainer, take steps in turn: while one works the other waits. Both start from the same base
and seed, so step i of one is step i of the other and their ratio is taken step by step. Run from the root of the
checkout, on a quiet machine:

    python -m benchmarks.step            # prints the table and writes it into benchmarks/README.md
    python -m benchmarks.step --steps 10 --dry

What is timed is the whole cycle of a step: data, generation, rewards, loss, optimiser, logging. The ratio is also taken
of processor time, which other programs on the machine disturb less than the clock on the wall.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.readme import about, write

WARM_UP = 5


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


CASES = (
    Case("`exact` reward, sums of 5 terms", "exact", task="chain(terms=5)", target=0.85),
    Case("`exact` reward", "exact"),
    Case("`graded` reward", "graded"),
    Case("`graded` with noise: no row can be left out", "spread", target=1.02),
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
    from rlkit.tasks.base import get_task

    graded = get_task(case.task).rewards["graded"]
    reward = spread(graded) if case.reward == "spread" else case.reward
    settings = {"max_steps": steps, "train_size": 1024, "skip_zero_advantage": case.skip}
    made = rlkit.trainer("grpo", preset="tiny", task=case.task, reward=reward, **settings)
    if stock:
        from trl import GRPOTrainer

        from rlkit.models import load_model

        policy, tokenizer = load_model("chain")  # a model of its own: the other trainer has patched the first
        functions = [func.func for func in made.reward_funcs]
        made = GRPOTrainer(policy, functions, made.args, made.train_dataset, processing_class=tokenizer)
    return made


def work(case: Any, stock: bool, steps: int, pipe: Connection, make: Callable[..., Any]) -> None:
    """Train step by step: before each one wait for the word, after it report its seconds."""
    from transformers import PrinterCallback, TrainerCallback

    class InTurn(TrainerCallback):
        started = (0.0, 0.0)

        def tell(self) -> None:
            wall, cpu = self.started
            pipe.send((time.perf_counter() - wall, time.process_time() - cpu))

        def on_step_begin(self, *args: Any, **about: Any) -> None:
            self.tell()
            pipe.recv()
            self.started = (time.perf_counter(), time.process_time())

        def on_train_end(self, *args: Any, **about: Any) -> None:
            self.tell()

    trainer = make(case, stock, steps)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(InTurn())
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    pipe.send([(line["loss"], line["grad_norm"], line.get("rows_left_out", 0.0)) for line in lines])


def measure(case: Any, steps: int, make: Callable[..., Any] = build) -> dict[str, Any]:
    """Both trainers in turn, from `make(case, stock, steps)`; which one goes first changes from step to step."""
    context = multiprocessing.get_context("spawn")
    ends, workers = [], []
    for stock in (True, False):
        ours, theirs = context.Pipe()
        worker = context.Process(target=work, args=(case, stock, steps, theirs, make))
        worker.start()
        ends.append(ours)
        workers.append(worker)
    for end in ends:
        end.recv()  # ready
    seconds: list[list[tuple[float, float]]] = [[], []]
    for step in range(steps):
        for side in (0, 1) if step % 2 else (1, 0):
            ends[side].send("go")
            seconds[side].append(ends[side].recv())
    logs = [end.recv() for end in ends]
    for worker in workers:
        worker.join()
    return summarise(case, [side[WARM_UP:] for side in seconds], logs)


def summarise(
    case: Any, seconds: list[list[tuple[float, float]]], logs: list[list[tuple[float, ...]]]
) -> dict[str, Any]:
    """Median milliseconds of both, median and quartiles of the ratios, and how far loss and gradient differ."""
    pairs = list(zip(*seconds, strict=True))
    wall, cpu = ([ours[clock] / stock[clock] for stock, ours in pairs] for clock in (0, 1))
    apart = max(abs(a - b) for stock, ours in zip(*logs, strict=True) for a, b in zip(stock[:2], ours[:2], strict=True))
    left_out = [line[2] for line in logs[1]][WARM_UP:]
    return {
        "case": case,
        "milliseconds": [1000 * statistics.median(wall for wall, _ in side) for side in seconds],
        "wall": statistics.quantiles(wall, n=4),
        "cpu": statistics.quantiles(cpu, n=4),
        "left_out": statistics.mean(left_out),
        "apart": apart,
        "steps": len(pairs),
    }


def table(found: list[dict[str, Any]]) -> str:
    """Markdown of all cases."""
    columns = [
        "8 prompts x 8 rollouts",
        "rows left out",
        "stock, ms",
        "rlkit, ms",
        "ratio",
        "ratio of CPU time",
        "wanted",
    ]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in found:
        case = row["case"]
        ratios = ["{1:.3f} ({0:.3f} to {2:.3f})".format(*row[clock]) for clock in ("wall", "cpu")]
        wanted = "" if case.target is None else f"at most {case.target}"
        cells = [case.name, f"{row['left_out']:.0%}", *(f"{ms:.0f}" for ms in row["milliseconds"]), *ratios, wanted]
        lines.append(f"| {' | '.join(cells)} |")
    apart = max(row["apart"] for row in found)
    how = f"Preset tiny, {found[0]['steps']} steps after {WARM_UP} to warm up; {about()}. "
    how += f"Loss and grad_norm of the two differ by at most {apart:.0e} over all steps."
    return "\n".join([*lines, "", how])


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description="Time per training step: rlkit against stock TRL.")
    parser.add_argument("--steps", type=int, default=60, help="timed steps a case")
    parser.add_argument("--dry", action="store_true", help="print only")
    given = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    text = table([measure(case, given.steps + WARM_UP) for case in CASES])
    print(text)
    if not given.dry:
        write("step", text)


if __name__ == "__main__":
    main()

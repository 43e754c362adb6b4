"""Time per training step: rlkit's trainer against stock TRL, at the same settings and on the same rollouts.

Two processes, one for each trainer, take steps in turn: while one works the other waits. Both start from the same base
and seed, so step i of one is step i of the other and their ratio is taken step by step. Run from the root of the
checkout, on a quiet machine:

    python -m benchmarks.step            # prints the table and writes it into benchmarks/README.md
    python -m benchmarks.step --steps 10 --dry

What is timed is the whole cycle of a step: data, generation, rewards, loss, optimiser, logging.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- step.py: begin -->", "<!-- step.py: end -->"
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


def work(case: Case, stock: bool, steps: int, pipe: Connection) -> None:
    """Train step by step: before each one wait for the word, after it report its seconds."""
    from transformers import PrinterCallback, TrainerCallback

    class InTurn(TrainerCallback):
        started = 0.0

        def on_step_begin(self, *args: Any, **about: Any) -> None:
            pipe.send(time.perf_counter() - self.started)
            pipe.recv()
            self.started = time.perf_counter()

        def on_train_end(self, *args: Any, **about: Any) -> None:
            pipe.send(time.perf_counter() - self.started)

    trainer = build(case, stock, steps)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(InTurn())
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    pipe.send([(line["loss"], line["grad_norm"], line.get("rows_left_out", 0.0)) for line in lines])


def measure(case: Case, steps: int) -> dict[str, Any]:
    """Both trainers in turn; which one goes first changes from step to step."""
    context = multiprocessing.get_context("spawn")
    ends, workers = [], []
    for stock in (True, False):
        ours, theirs = context.Pipe()
        worker = context.Process(target=work, args=(case, stock, steps, theirs))
        worker.start()
        ends.append(ours)
        workers.append(worker)
    for end in ends:
        end.recv()  # ready
    seconds: list[list[float]] = [[], []]
    for step in range(steps):
        for side in (0, 1) if step % 2 else (1, 0):
            ends[side].send("go")
            seconds[side].append(ends[side].recv())
    logs = [end.recv() for end in ends]
    for worker in workers:
        worker.join()
    return summarise(case, [side[WARM_UP:] for side in seconds], logs)


def summarise(case: Case, seconds: list[list[float]], logs: list[list[tuple[float, ...]]]) -> dict[str, Any]:
    """Median milliseconds of both, median and quartiles of the ratio, and how far loss and gradient differ."""
    ratios = [ours / stock for stock, ours in zip(*seconds, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    apart = max(abs(a - b) for stock, ours in zip(*logs, strict=True) for a, b in zip(stock[:2], ours[:2], strict=True))
    left_out = [line[2] for line in logs[1]][WARM_UP:]
    return {
        "case": case,
        "stock": 1000 * statistics.median(seconds[0]),
        "ours": 1000 * statistics.median(seconds[1]),
        "ratio": middle,
        "quartiles": (low, high),
        "left_out": statistics.mean(left_out),
        "apart": apart,
        "steps": len(ratios),
    }


def table(found: list[dict[str, Any]]) -> str:
    """Markdown of all cases."""
    import torch
    import trl

    head = (
        "| preset tiny, 8 prompts x 8 rollouts | rows left out | stock, ms | rlkit, ms | ratio (quartiles) | wanted |"
    )
    lines = [head, "|---|---|---|---|---|---|"]
    for row in found:
        case, (low, high) = row["case"], row["quartiles"]
        wanted = "" if case.target is None else f"at most {case.target}"
        ratio = f"**{row['ratio']:.3f}** ({low:.3f} to {high:.3f})"
        times = f"{row['stock']:.1f} | {row['ours']:.1f}"
        lines.append(f"| {case.name} | {row['left_out']:.0%} | {times} | {ratio} | {wanted} |")
    apart = max(row["apart"] for row in found)
    about = f"{found[0]['steps']} steps after {WARM_UP} to warm up; torch {torch.__version__}, TRL {trl.__version__}, "
    about += f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, one thread. "
    about += f"Loss and grad_norm of the two differ by at most {apart:.0e} over all steps."
    return "\n".join([*lines, "", about])


def write(text: str) -> None:
    """Put the table between its marks in the README."""
    old = README.read_text(encoding="utf-8")
    before, rest = old.split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8", newline="\n")


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
        write(text)


if __name__ == "__main__":
    main()

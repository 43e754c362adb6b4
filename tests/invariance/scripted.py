"""Short runs whose rollouts are scripted: what is drawn is fixed, so that only the learning is compared.

A completion is the right solution of its prompt with some characters changed and, now and then, its end cut off. It is
a function of prompt, place in the group and step, from Python's generator: the same on any machine and for any torch.
Everything behind the drawing is what trains otherwise: tokenizing, scoring, rewards, advantages, loss, optimiser.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import rlkit
from rlkit.method import Method, get_method
from rlkit.tasks import chain, planted

Trajectory = dict[str, list[float]]
"""For each metric one value a step."""
COMMON: dict[str, Any] = {"preset": "smoke", "train_size": 256, "learning_rate": 1e-4}
RUNS: dict[str, dict[str, Any]] = {
    "grpo": {"prompts_per_step": 4, "num_generations": 4, "reward": "graded"},
    "mc_grpo": {"prompts_per_step": 4, "num_generations": 4, "reward": "graded"},
    "replay_uniform": {"prompts_per_step": 4, "num_generations": 4, "reward": "graded", "buffer": 48},
    # Of seeds 3 to 22 the one whose choice of tokens is clearest: at each of 50 steps the lowest score that is kept and
    # the highest that is left out are 1e-4 apart or more, and rounding moves a score by about 1e-6.
    "tip": {"prompts_per_step": 4, "task": "planted", "seed": 15},
}
"""The methods that are compared, and their settings."""
LOGGED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "reward": "reward",
    "divergence": "divergence",
    "entropy": r"entropy(/trained_rows)?",
    "mean_length": r"completions/mean_length",
    "trained_tokens": "trained_tokens",
}
"""What is kept of the log, and under which names it stands there."""
WATCHED = ("embed_tokens", "layers.0.self_attn.q_proj", "mlp.down_proj", "norm")
"""Weights whose movement is kept: the first parameter with each of these in its name."""
SPOILT, CUT = 0.12, 0.15
"""Chances that a digit is another one, and that a completion ends before its end."""


def solution_of(prompt: str) -> str:
    """The right completion of a prompt of either task."""
    if prompt.endswith("="):
        return planted.problem_of(prompt).solution
    terms = [int(number) for number in re.findall(r"\d+", prompt)]
    return chain.Problem(tuple(terms), "".join(re.findall(r"[+-]", prompt))).solution


def completion_of(prompt: str, place: int, step: int) -> tuple[str, bool]:
    """A completion, and whether it is whole. Only `random()` is drawn from: it is the same in every Python."""
    rng, right = random.Random(f"{prompt}/{place}/{step}"), solution_of(prompt)
    text = [str(int(10 * rng.random())) if c.isdigit() and rng.random() < SPOILT else c for c in right]
    whole = rng.random() >= CUT
    return "".join(text if whole else text[: 1 + int(rng.random() * (len(text) - 1))]), whole


def script(trainer: Any, place_of: Callable[[int, int], int] = lambda i, step: i) -> None:
    """Give the trainer its completions where it would draw them.

    Args:
        trainer: of either family.
        place_of: which of the group's completions its i-th row gets, at a step.
    """
    tokenizer, size = trainer.processing_class, getattr(trainer, "num_generations", 1)

    def drawn(prompt_ids: Sequence[Sequence[int]], *rest: Any, **named: Any) -> Any:
        step, rows = trainer.state.global_step, []
        for i, ids in enumerate(prompt_ids):
            prompt = tokenizer.decode(ids, skip_special_tokens=True)
            text, whole = completion_of(prompt, place_of(i % size, step), step)
            rows.append(tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] * whole)
        return rows if trainer.method.trainer == "distill" else (rows, None)

    trainer._generate_single_turn = drawn


def build(name: str, folder: Path, *, method: Method | None = None, **changes: Any) -> Any:
    """A trainer of one of `RUNS`, quiet and on one thread; `method` in place of the named one."""
    from transformers.trainer_callback import PrinterCallback

    settings = {**COMMON, **RUNS[name], "output_dir": str(folder), **changes}
    made = rlkit.trainer(method or get_method(name), **settings)
    made.remove_callback(PrinterCallback)
    return made


def train(name: str, folder: Path, steps: int, prepare: Callable[[Any], None] = script, **changes: Any) -> Trajectory:
    """Train some steps; what was logged, and how far the weights have moved after each step."""
    trainer = build(name, folder, max_steps=steps, **changes)
    prepare(trainer)
    return follow(trainer)


def follow(trainer: Any) -> Trajectory:
    """Train; what was logged at each step, and how far the weights have moved by then."""
    from rlkit.trainers.watch import as_callback

    moved = Moved(trainer.model)
    trainer.add_callback(as_callback(moved))
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    logged = {name: [_value(line, pattern) for line in lines] for name, pattern in LOGGED.items()}
    return {**{name: values for name, values in logged.items() if None not in values}, **moved.norms}


def _value(line: Mapping[str, Any], pattern: str) -> Any:
    found = [value for name, value in line.items() if re.fullmatch(pattern, name)]
    return found[0] if found else None


class Moved:
    """Notes after each step the norm of each watched weight's way from where it was, and that of all together."""

    def __init__(self, model: Any) -> None:
        every = dict(model.named_parameters())
        self.watched = {f"moved/{part}": next(p for name, p in every.items() if part in name) for part in WATCHED}
        self.every = list(every.values())
        self.start = [p.detach().double().clone() for p in self.every]
        self.norms: Trajectory = {name: [] for name in (*self.watched, "moved")}

    def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        norms = [(p.detach().double() - start).norm() for p, start in zip(self.every, self.start, strict=True)]
        self.norms["moved"].append(float(torch.stack(norms).norm()))
        for name, watched in self.watched.items():
            self.norms[name].append(float(norms[next(i for i, p in enumerate(self.every) if p is watched)]))

"""What must not matter to training: how a batch is cut, padded and ordered, recomputed, looked at or interrupted.

Elsewhere, and not repeated here: one process and two (`tests/trainers/test_two_ranks_scripted.py`), `record_steps` and
`preview` bit for bit (`tests/steps/test_preview.py`, `test_preview_distill.py`), losses of every kind cut into
micro-batches (`tests/trainers/test_denominators.py`), saves that cannot be resumed (`tests/trainers/test_resume.py`).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from rlkit.runs import training
from rlkit.runs.keys import Run
from rlkit.trainers import checkpoint
from tests.invariance.closeness import Tolerance, differences
from tests.invariance.scripted import COMMON, RUNS, build, script, train

TOLERANCE = Tolerance(largest=5e-5, mean=2e-5)
"""Sums are taken in another order. Measured over 4 steps of all methods: 5.3e-6 at most (the gradient norm), 2.5e-6 in
the mean (the way of a norm's weights: AdamW divides small gradients by small numbers). Ten times that is allowed."""
STEPS = 4
SMALL: dict[str, dict[str, Any]] = {
    "grpo": {"prompts_per_step": 2},
    "mc_grpo": {"prompts_per_step": 2},
    # A buffer of one step, all of which is replayed: which rows are drawn does not depend on their order.
    "replay_uniform": {"prompts_per_step": 2, "buffer": 8},
    "tip": {"prompts_per_step": 8},
}
"""8 rows a step (`mc_grpo`: 10)."""
ROWS = {"grpo": 8, "mc_grpo": 10, "replay_uniform": 8, "tip": 8}
BY_MICRO_BATCH = ("entropy", "divergence")
"""Logged as the mean over micro-batches of each one's mean, so they say something else when a batch is cut otherwise.
Neither of them is trained on."""
QUICK = ("replay_uniform", "tip")
"""The two with most code of their own."""
MARKED = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in RUNS]
per_method = pytest.mark.parametrize("name", MARKED)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run of a method that all others are compared with, trained once."""
    made: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in made:
            torch.set_num_threads(1)
            made[name] = train(name, tmp_path_factory.mktemp(name), STEPS, **SMALL[name])
        return made[name]

    return of


@per_method
def test_one_row_at_a_time_is_the_whole_batch(name: str, plain: Any, tmp_path: Path) -> None:
    """8 x 1 and 1 x 8: rows a micro-batch times micro-batches a step."""
    found = train(name, tmp_path, STEPS, **SMALL[name], gradient_accumulation_steps=ROWS[name])
    cut, whole = ({k: v for k, v in run.items() if k not in BY_MICRO_BATCH} for run in (found, plain(name)))
    assert differences(cut, whole, TOLERANCE) == []


@per_method
def test_added_padding_changes_nothing(name: str, plain: Any, tmp_path: Path) -> None:
    found = train(name, tmp_path, STEPS, **SMALL[name], pad_to_multiple_of=32)
    assert differences(found, plain(name), TOLERANCE) == []


def _shuffled(trainer: Any) -> None:
    """The same completions in another order within each group; in distillation, the same rows in another order."""
    size = getattr(trainer, "num_generations", 1)
    script(trainer, lambda i, step: random.Random(step).sample(range(size), size)[i])
    if trainer.method.trainer == "distill":
        inner = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda rows: inner(random.Random(3).sample(rows, len(rows)))


@per_method
def test_the_order_of_rollouts_does_not_matter(name: str, plain: Any, tmp_path: Path) -> None:
    found = train(name, tmp_path, STEPS, _shuffled, **SMALL[name])
    assert differences(found, plain(name), TOLERANCE) == []


@per_method
def test_activations_that_are_computed_again_are_the_same_bit_for_bit(name: str, plain: Any, tmp_path: Path) -> None:
    assert train(name, tmp_path, STEPS, **SMALL[name], gradient_checkpointing=True) == plain(name)


# Rollouts that are drawn: the random state has to be right too ----------------------------------------------------


@per_method
def test_evaluation_changes_nothing_bit_for_bit(name: str, tmp_path: Path) -> None:
    """Greedy accuracy after every step, or never."""
    settings = {**COMMON, **RUNS[name], **SMALL[name], "max_steps": 3}
    given = {key: settings.pop(key, None) for key in ("preset", "task", "reward")}
    settings.pop("seed", None)
    runs = [
        training.train(Run(name, given["preset"], 0, task=given["task"], reward=given["reward"], overrides=o), tmp_path)
        for o in ({**settings, "eval_every": 1, "eval_size": 4}, {**settings, "eval_size": 0})
    ]
    often, never = ([row for row in run.metrics if row[1] != "accuracy"] for run in runs)
    assert often == never and len(often) > 3 * 5
    assert len([row for row in runs[0].metrics if row[1] == "accuracy"]) == 4


TIMED = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")
CUTS: dict[str, dict[str, Any]] = {"each step": {}, "each second step": {"steps_per_generation": 2}}
"""Checkpoints are allowed between generation batches: here after every step, or after every second one."""


def _lines(trainer: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in TIMED} for line in trainer.state.log_history if "loss" in line]


def _memory(trainer: Any) -> Any:
    """The method's memory as it would be saved: JSON, and tensors as lists."""
    tensors: dict[str, torch.Tensor] = {}
    packed = [checkpoint.pack(thing.state_dict(), tensors) for thing in trainer.method.state]
    return packed, {key: value.tolist() for key, value in tensors.items()}


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
@per_method
def test_a_run_can_be_resumed_wherever_it_may_be_saved(name: str, cut: str, tmp_path: Path, one_thread: Any) -> None:
    """Six steps, resumed from each checkpoint: the same metrics, weights and memory bit for bit."""
    if name == "tip" and CUTS[cut]:
        pytest.skip("TRL's distillation draws once a step")
    every, settings = 2 if CUTS[cut] else 1, {**SMALL[name], **CUTS[cut], "max_steps": 6}
    whole = build(name, tmp_path, save_strategy="steps", save_steps=every, **settings)
    whole.train()
    for step in range(every, 6, every):
        resumed = build(name, tmp_path / "resumed", **settings)
        resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert _lines(resumed) == _lines(whole), step
        assert all(map(torch.equal, resumed.model.parameters(), whole.model.parameters())), step
        assert _memory(resumed) == _memory(whole), step
    assert len(_lines(whole)) == 6 and any(line["grad_norm"] > 0 for line in _lines(whole))

"""`keep` changes the objective: loss and gradient equal those of the rows that count, worked out here row by row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rlkit.method import Context, Method
from tests.tiny import Build, history
from tests.trainers.by_hand import loss_and_gradient

LONGEST = 8


class Recorder:
    """An advantage hook with keep that remembers what it decided."""

    def __init__(self, keep: Any) -> None:
        self.make_keep, self.rows = keep, []

    def __call__(self, ctx: Context) -> Any:
        advantages = ctx.rewards - ctx.rewards.mean(1, keepdim=True)
        advantages[1] = 0  # a group without gradient that counts
        keep = self.make_keep(ctx.rewards)
        flat = zip(ctx.columns["prompt"], ctx.completion_ids, advantages.flatten(), keep.flatten(), strict=True)
        self.rows = list(flat)
        return advantages, keep


def _uneven(rewards: Tensor) -> Any:
    """Every second row of group 0, all of group 1, 3 rows of each other group."""
    keep = torch.ones_like(rewards, dtype=torch.bool)
    keep[2:, 0] = False
    keep[0, ::2] = False
    return keep


# bnpo averages each micro-batch by itself, by design: it has no value that accumulation leaves alone
CASES = [(loss, parts) for loss in ("grpo", "dr_grpo", "dapo", "cispo") for parts in (1, 4)] + [("bnpo", 1)]


@pytest.mark.parametrize(("loss", "accumulation"), CASES)
@pytest.mark.parametrize("skip", [True, False], ids=["rows left out", "all rows"])
def test_loss_and_gradient_are_those_of_the_rows_that_count(
    build: Build, loss: str, accumulation: int, skip: bool
) -> None:
    recorder = Recorder(_uneven)
    trainer = build(
        method=Method("uneven", advantage=recorder),
        named={"skip_zero_advantage": skip},
        loss_type=loss,
        epsilon_high=5.0 if loss == "cispo" else None,
        gradient_accumulation_steps=accumulation,
        per_device_train_batch_size=32 // accumulation,
        max_completion_length=LONGEST,
        max_steps=1,
        max_grad_norm=1e9,
    )
    trainer.train()
    expected = loss_and_gradient(recorder.rows, loss, LONGEST)
    assert history(trainer, "loss", "grad_norm")[0] == pytest.approx(expected, rel=2e-6, abs=1e-6)
    assert sum(len(c) for _, c, _, keep in recorder.rows if not keep) > 0
    trained = [keep and (a != 0 or not skip) for _, _, a, keep in recorder.rows]
    tokens = sum(len(c) for (_, c, _, _), yes in zip(recorder.rows, trained, strict=True) if yes)
    generated = sum(len(c) for _, c, _, _ in recorder.rows)
    logged = history(trainer, "rows_left_out", "trained_tokens", "generated_tokens")[0]
    assert logged == (pytest.approx(1 - sum(trained) / 32), tokens, generated)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "bnpo"])
def test_rows_that_have_to_stay_in_place_are_silenced(build: Build, loss: str) -> None:
    """A model that sees images: its tensors are not all indexed by row, so rows are not taken out but count nothing."""
    recorder = Recorder(_uneven)
    config = {"loss_type": loss, "max_completion_length": LONGEST, "max_steps": 1, "max_grad_norm": 1e9}
    trainer = build(method=Method("uneven", advantage=recorder), named={"skip_zero_advantage": False}, **config)
    trainer._is_vlm = True  # what TRL sets from the processor; texts are handled alike
    trainer.train()
    expected = loss_and_gradient(recorder.rows, loss, LONGEST)
    assert history(trainer, "loss", "grad_norm")[0] == pytest.approx(expected, rel=2e-6, abs=1e-6)


def test_no_row_is_lost_when_kept_rows_do_not_divide_into_micro_batches(build: Build) -> None:
    """3 of each group of 4 stay: 24 rows, not the same number in each of 4 micro-batches; TRL's split drops none."""
    seen = []

    def keep_three(ctx: Context) -> Any:
        keep = torch.ones_like(ctx.rewards, dtype=torch.bool)
        keep[:, 3] = False
        seen.append(int(keep.sum()))
        return ctx.rewards - ctx.rewards.mean(), keep

    trainer = build(
        method=Method("three", advantage=keep_three),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        max_steps=1,
    )
    trained = []
    inner = trainer._choose
    trainer._choose = lambda inputs: trained.append(inner(inputs)) or trained[-1]
    trainer.train()
    assert sum(count for _, count in trained) == seen[0] == 24
    for chosen, count in trained:  # every tensor that has rows has the same ones
        sizes = {len(v) for v in chosen.values() if isinstance(v, torch.Tensor) and v.ndim}
        assert sizes == {count}


def test_rows_taken_out_stay_out_of_the_metrics(build: Build) -> None:
    """The same rollouts: entropy over counted rows only, with 1 row of 32 and 4 micro-batches, 3 of them empty."""

    def one(ctx: Context) -> Any:
        keep = torch.zeros_like(ctx.rewards, dtype=torch.bool)
        keep[0, 0] = True
        return torch.ones_like(ctx.rewards), keep

    config = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "max_steps": 1}
    named = {"skip_zero_advantage": False}
    some = build(method=Method("one", advantage=one), named=named, **config)
    some.train()
    (entropy, left_out), *_ = history(some, "entropy", "rows_left_out")
    assert left_out == pytest.approx(31 / 32)
    assert 2 < entropy < math.log(20)  # an average over the one row, not over empty micro-batches


def test_accumulation_changes_nothing(build: Build) -> None:
    """Loss and gradient of 8 prompts x 4 in one batch and in 4 micro-batches (bnpo apart, see above)."""
    for loss in ("dapo", "grpo", "dr_grpo"):
        norms = []
        for parts in (1, 4):
            config = {"per_device_train_batch_size": 32 // parts, "gradient_accumulation_steps": parts}
            trainer = build(loss_type=loss, max_steps=2, **config)
            trainer.train()
            norms.append(history(trainer, "loss", "grad_norm"))
        assert norms[0][0] == pytest.approx(norms[1][0], rel=1e-6, abs=1e-6)


def test_every_generation_batch_is_used_once_a_chunk_and_mixed(build: Build) -> None:
    """Rows are shuffled before they are cut, so a micro-batch has rows of several prompts; groups are whole before."""
    prompts = []

    def spy(ctx: Context) -> Any:
        prompts.extend(ctx.columns["prompt"])
        return ctx.rewards - ctx.rewards.mean(1, keepdim=True)

    trainer = build(
        method=Method("spy", advantage=spy), per_device_train_batch_size=8, gradient_accumulation_steps=4, max_steps=1
    )
    kinds = []
    inner = trainer._choose
    trainer._choose = lambda inputs: kinds.append(inputs["prompt_ids"].unique(dim=0).size(0)) or inner(inputs)
    trainer.train()
    groups = [set(prompts[i : i + 4]) for i in range(0, len(prompts), 4)]
    assert all(len(group) == 1 for group in groups)
    assert all(count > 1 for count in kinds)


def test_the_ratio_is_one_on_fresh_rollouts_only(build: Build) -> None:
    ratios = []

    def weigh(ctx: Context) -> Any:
        ratios.append(float((((ctx.logps - ctx.old_logps).exp() - 1).abs() * ctx.mask).max()))
        return torch.ones_like(ctx.logps)

    build(method=Method("w", token_weight=weigh), num_iterations=2, max_steps=2, learning_rate=1e-2).train()
    assert ratios[0] < 1e-5 < 1e-4 < ratios[1]


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo"])
def test_a_micro_batch_that_loses_no_row_has_the_same_denominator(build: Build, loss: str) -> None:
    """One row of 32 is out, so three of four micro-batches are whole; nothing is skipped."""

    def all_but_one(rewards: Tensor) -> Any:
        keep = torch.ones_like(rewards, dtype=torch.bool)
        keep[0, 0] = False
        return keep

    recorder = Recorder(all_but_one)
    trainer = build(
        method=Method("all_but_one", advantage=recorder),
        named={"skip_zero_advantage": False},
        loss_type=loss,
        gradient_accumulation_steps=4,
        per_device_train_batch_size=8,
        max_completion_length=LONGEST,
        max_steps=1,
        max_grad_norm=1e9,
    )
    trainer.train()
    expected = loss_and_gradient(recorder.rows, loss, LONGEST)
    assert history(trainer, "loss", "grad_norm")[0] == pytest.approx(expected, rel=2e-6, abs=1e-6)

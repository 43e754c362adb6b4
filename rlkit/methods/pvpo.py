"""PVPO: the baseline of a prompt is what the starting policy got on it, measured once before training.

Paper: arXiv 2508.21104 (full text of the conference version). For M rollouts of prompt x by the starting policy and G
rollouts r_1..r_G by the present one:

    V(x) = (1 / M) sum_j R(x, y_j),  y_j drawn by the starting policy
    A_i = r_i - V(x)                 no division by a standard deviation

The group's own mean is not used, so a group in which all rollouts got the same reward still has an advantage, unless
that reward is exactly V(x).

What is different here, and why. M is `num_generations`, as in the paper (`samples` changes it). The M rollouts of
every prompt in the data set are charged to `generated_tokens`: keep the data set no larger than a run needs. The
paper measures V again in the middle of training, with a model that its text does not name; here V is measured once,
so it ages. The paper also drops prompts that the reference always solves (`drop_at=1.0`; off here, so that all arms
see the same prompts) and puts a larger model's right answer into groups without one (left out). Its text prints
neither clip range nor KL weight: those here are TRL's. The loss is its mean over tokens, then over completions. A
prompt whose reference rollouts could not be scored falls back to the group's mean.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.grpo import mean_centered

COLUMN = "reference_reward"
"""Data-set column with V(x)."""


def static_advantage(rewards: Tensor, reference: Tensor) -> Tensor:
    """PVPO's advantage: r - V.

    Args:
        rewards: (N, G); NaN where a rollout could not be scored.
        reference: (N, 1) or (N, G) mean reward of the starting policy; NaN where it has none: the group's mean instead.

    Returns:
        (N, G), NaN where the reward is.

    """
    return torch.where(reference.isnan(), mean_centered(rewards), rewards - reference)


def measure_reference(dataset: Any, trainer: Any) -> Any:
    """Roll out the starting policy on every prompt and add the column `reference_reward`, the mean of M rewards."""
    options = trainer.method.options
    if options["baseline"] == "group":
        return dataset
    M = options["samples"] or trainer.num_generations
    rewards = [got["reward"] for got in trainer.collect([row for row in dataset for _ in range(M)])]
    reference = torch.tensor(rewards).view(-1, M).nanmean(1)
    dataset = dataset.add_column(COLUMN, reference.tolist())
    if options["drop_at"] is None:
        return dataset
    return dataset.select((~(reference >= options["drop_at"])).nonzero().flatten().tolist())


def _advantage(ctx: Context) -> Tensor:
    assert ctx.rewards is not None and ctx.valid is not None
    if ctx.options["baseline"] == "group":
        return mean_centered(ctx.rewards)
    if ctx.options["baseline"] != "static":
        raise ValueError(f"baseline is 'static' or 'group', not {ctx.options['baseline']!r}.")
    reference = torch.full_like(ctx.rewards, torch.nan)
    reference[ctx.valid] = torch.tensor(ctx.columns[COLUMN], dtype=reference.dtype, device=reference.device)
    return static_advantage(ctx.rewards, reference)


PVPO = Method(
    "pvpo",
    summary="the baseline is the starting policy's mean reward on the prompt, measured once",
    paper="2508.21104",
    parent="dr_grpo",
    config={"loss_type": "grpo", "scale_rewards": "none"},
    options={"baseline": "static", "samples": None, "drop_at": None},
    reduces_to={"baseline": "group", "loss_type": "dr_grpo"},
    data=measure_reference,
    advantage=_advantage,
)

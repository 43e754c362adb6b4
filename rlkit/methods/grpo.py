"""GRPO and its two plainest relatives: what is subtracted from a reward, and what it is divided by.

Papers: GRPO arXiv 2402.03300; Dr. GRPO arXiv 2503.20783; RLOO arXiv 2402.14740. For G rollouts of one prompt with
rewards r_1..r_G:

    grpo     A_i = (r_i - mean(r)) / (std(r) + 1e-4)        std with G - 1 in the denominator
    dr_grpo  A_i = r_i - mean(r)
    rloo     A_i = r_i - mean(r without r_i) = G / (G - 1) * (r_i - mean(r))

What is different here. `grpo` is TRL's own trainer with nothing set: the loss is a mean over the tokens of the batch
(`loss_type="dapo"`) without KL; the paper averages per completion (`loss_type="grpo"`) and has a KL term. `dr_grpo` is
two of TRL's switches: no std, and a loss that divides by the constant max_completion_length instead of a length. `rloo`
keeps that loss, which is the original's sum over tokens up to a constant, with TRL's clip (never active on fresh
rollouts) and without the original's KL in the reward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlkit.method import Context, Method

EPSILON = 1e-4
"""TRL's constant beside the standard deviation."""


def mean_centered(rewards: Tensor) -> Tensor:
    """Dr. GRPO's advantage: r - mean over the scorable rollouts of the group. (N, G) -> (N, G); NaN stays NaN."""
    return rewards - rewards.nanmean(1, keepdim=True)


def standardized(rewards: Tensor, eps: float = EPSILON) -> Tensor:
    """GRPO's advantage, as TRL computes it. (N, G) -> (N, G); NaN (unscorable) stays NaN and out of mean and std."""
    centered = mean_centered(rewards)
    freedom = (~rewards.isnan()).sum(1, keepdim=True) - 1
    return centered / ((centered**2).nansum(1, keepdim=True).div(freedom).sqrt() + eps)


def leave_one_out(rewards: Tensor) -> Tensor:
    """RLOO's advantage: r - mean of the others. (N, G) -> (N, G); NaN stays NaN; a rollout without others gets 0."""
    others = (~rewards.isnan()).sum(1, keepdim=True) - 1
    baseline = (rewards.nansum(1, keepdim=True) - rewards) / others
    return torch.where(others > 0, rewards - baseline, rewards * 0)


def _rloo(ctx: Context) -> Tensor:
    assert ctx.rewards is not None
    return leave_one_out(ctx.rewards) if ctx.options["leave_one_out"] else mean_centered(ctx.rewards)


GRPO = Method(
    "grpo",
    summary="mean and standard deviation of the group: TRL's own trainer",
    paper="2402.03300",
    no_reduction="it is the root: stock TRL with nothing set",
)

DR_GRPO = Method(
    "dr_grpo",
    summary="no standard deviation, no division by length",
    paper="2503.20783",
    parent="grpo",
    config={"loss_type": "dr_grpo", "scale_rewards": "none"},
    reduces_to={"loss_type": "dapo", "scale_rewards": "group"},
)

RLOO = Method(
    "rloo",
    summary="the baseline is the mean of the other rollouts",
    paper="2402.14740",
    parent="dr_grpo",
    config={"loss_type": "dr_grpo", "scale_rewards": "none"},
    options={"leave_one_out": True},
    reduces_to={"leave_one_out": False},
    advantage=_rloo,
)

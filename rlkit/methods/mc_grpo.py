"""MC-GRPO: the median of G + 1 rollouts as the baseline of a small group.

Paper: arXiv 2601.22582 (abstract and released code; the body could not be read). For the G + 1 rewards of a prompt,
G + 1 odd, so that the median m is one of them:

    A_i = (r_i - m) / (MAD + eps),   MAD = median_i |r_i - m|,   eps = 1e-3

One rollout with r_i = m, the pivot, has A = 0 and is taken out before the loss; G rows are trained.

What is different here, and why. The default scale is `none` (A = r - m) with the Dr. GRPO loss. With rewards of two
values the MAD of an odd group is exactly 0, so the paper's scale is 1 / eps = 1000 in every mixed group; with graded
rewards that still happens in many groups, which then outweigh all others. The other scales are options: `mad` as
released, `mad_floor` divides by max(MAD, floor), `std` uses the group's std where MAD is 0. The pivot is the lowest
index at the median (the release takes what torch.median returns, which is not defined under ties). Groups are G + 1
rollouts side by side: the release appends the extra ones at the end of the batch, so that its groups mix prompts.
Unscorable rollouts stay out of median and MAD; if their number leaves an even group, the median is the lower of the two
middle rewards.

Two more methods stand here because the paper's claim needs them. `mean_plus_one` is the control at equal cost: the mean
over all G + 1 rollouts, all of them trained. `flipped_signs` is the release's ablation: some advantages get the wrong
sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.grpo import leave_one_out, mean_centered

if TYPE_CHECKING:
    import pandas as pd

SCALES = ("none", "mad", "mad_floor", "std")
BASELINES = ("mean", "median", "mean_plus_one", "leave_one_out")


def median_pivot(
    rewards: Tensor, scale: str = "none", eps: float = 1e-3, floor: float = 0.25, rescale: bool = False
) -> tuple[Tensor, Tensor]:
    """Median-centered advantages and the rollouts that stay.

    Args:
        rewards: (N, G + 1), G + 1 odd; NaN where a rollout could not be scored.
        scale: "none", "mad", "mad_floor" or "std" (see the top of this file).
        eps: added to MAD and std.
        floor: smallest divisor of "mad_floor", in units of the reward.
        rescale: multiply by (G + 1) / (number of non-zero advantages), as the released GSM8K trainer does.

    Returns:
        Advantages (N, G + 1), NaN where the reward is, and keep (N, G + 1) bool with one False a row, the pivot.

    Raises:
        ValueError: an even group, or an unknown scale.

    """
    N, size = rewards.shape
    if size % 2 == 0:
        raise ValueError(
            f"A group of {size} has no middle rollout: the median needs an odd number. Use num_generations={size + 1} "
            f"to train {size} rows a prompt, or {size - 1} to train {size - 2}."
        )
    m = rewards.nanmedian(1, keepdim=True).values
    A = (rewards - m) / _divisor(rewards, m, scale, eps, floor)
    if rescale:
        A = A * size / (A.abs() > 1e-6).sum(1, keepdim=True).clamp(min=1)
    pivot = (rewards == m).int().argmax(1)  # the first at the median
    keep = torch.ones(N, size, dtype=torch.bool, device=rewards.device)
    keep[torch.arange(N, device=rewards.device), pivot] = False
    return A, keep


def _divisor(rewards: Tensor, m: Tensor, scale: str, eps: float, floor: float) -> Tensor:
    """(N, 1) what r - m is divided by."""
    mad = (rewards - m).abs().nanmedian(1, keepdim=True).values
    if scale == "none":
        return torch.ones_like(mad)
    if scale == "mad":
        return mad + eps
    if scale == "mad_floor":
        return mad.clamp(min=floor)
    if scale == "std":
        centered = mean_centered(rewards)
        std = ((centered**2).nansum(1, keepdim=True) / ((~rewards.isnan()).sum(1, keepdim=True) - 1)).sqrt()
        return torch.where(mad > 0, mad, std) + eps
    raise ValueError(f"scale is one of {', '.join(SCALES)}, not {scale!r}.")


def flip_signs(advantages: Tensor, probability: float, seed: int, step: int) -> Tensor:
    """Each advantage with its sign turned with `probability`; draws are a function of seed and step. Any shape."""
    if not 0 <= probability <= 1:
        raise ValueError(f"flip_probability is a probability, not {probability}.")
    generator = torch.Generator().manual_seed(1_000_003 * seed + step)
    flip = torch.rand(advantages.shape, generator=generator) < probability
    return torch.where(flip.to(advantages.device), -advantages, advantages)


def sign_flips(advantages: Tensor, rewards: Tensor, mu: Tensor | float) -> tuple[Tensor, Tensor]:
    """Which advantages point away from, and which say nothing about, the side of the prompt's true mean reward.

    Args:
        advantages: (..., G).
        rewards: (..., G).
        mu: expected reward of the prompt under the same policy, broadcast against them.

    Returns:
        flips: sign(A) * sign(r - mu) < 0; zeros: A = 0 although r differs from mu. Both (..., G) bool.

    """
    side = (rewards - mu).sign()
    return advantages.sign() * side < 0, (advantages == 0) & (side != 0)


def flip_study(
    rewards: Tensor,
    groups: Sequence[int] = (2, 4, 8),
    repeats: int = 200,
    seed: int = 0,
    scale: str = "none",
    signal: Tensor | None = None,
) -> pd.DataFrame:
    """Sign flips of four baselines, measured without training on many rollouts of a frozen policy.

    Groups are drawn from the K rollouts of a prompt without putting back; mu is the mean over the K. All four baselines
    see the same draws: `mean` and `leave_one_out` the first G, `median` (kept rows) and `mean_plus_one` all G + 1.

    Args:
        rewards: (P, K) rewards of K rollouts of each of P prompts; K of 128 or more keeps the error of mu small.
        groups: values of G, even.
        repeats: groups drawn per prompt and G.
        seed: of the draws.
        scale: of the median's advantage; it changes no sign.
        signal: (P, K) what the rewards are a noisy view of; advantages come from `rewards`, the right side of the mean
            from `signal`. The rewards themselves by default.

    Returns:
        One row per prompt, G and baseline: `prompt`, `G`, `baseline`, `flip_rate` and `zero_share` (shares of rows).

    """
    import pandas as pd

    P, generator = len(rewards), torch.Generator().manual_seed(seed)
    signal = rewards if signal is None else signal
    side = signal - signal.mean(1, keepdim=True)
    found: list[dict[str, Any]] = []
    for G in groups:
        r, above = _groups(G + 1, repeats, generator, rewards, side)
        for baseline in BASELINES:
            A, keep = _baseline(r, G, baseline, scale)
            flips, zeros = (x & keep for x in sign_flips(A, above[:, : A.size(1)], 0.0))
            per_prompt = keep.view(P, -1).sum(1)
            shares = [(x.view(P, -1).sum(1) / per_prompt).tolist() for x in (flips, zeros)]
            names = ("prompt", "G", "baseline", "flip_rate", "zero_share")
            found += [
                dict(zip(names, (p, G, baseline, f, z), strict=True))
                for p, (f, z) in enumerate(zip(*shares, strict=True))
            ]
    return pd.DataFrame(found)


def mad_study(
    rewards: Tensor, groups: Sequence[int] = (2, 4, 8), repeats: int = 200, seed: int = 0, eps: float = 1e-3
) -> pd.DataFrame:
    """How often the MAD of a group is 0, and how much such groups weigh under the scale `mad`.

    Args:
        rewards: (P, K) rewards of K rollouts of each of P prompts.
        groups: values of G, even; groups of G + 1 are drawn without putting back.
        repeats: groups drawn per prompt and G.
        seed: of the draws.
        eps: added to the MAD.

    Returns:
        One row per prompt and G: `prompt`, `G`, `mad_zero` (share of the mixed groups, those whose rewards are not all
        equal, with MAD 0) and `weight` (their share of the sum of squared advantages); NaN where no group is mixed.

    """
    import pandas as pd

    P, generator = len(rewards), torch.Generator().manual_seed(seed)
    found = []
    for G in groups:
        (r,) = _groups(G + 1, repeats, generator, rewards)
        mixed = (r != r[:, :1]).any(1)
        zero = mixed & ((r - r.median(1, keepdim=True).values).abs().median(1).values == 0)
        weight = median_pivot(r, "mad", eps)[0].square().sum(1)
        total, of_zero = (x.view(P, -1).sum(1) for x in (weight, weight * zero))
        share = zero.view(P, -1).sum(1) / mixed.view(P, -1).sum(1)
        columns = {"mad_zero": share.tolist(), "weight": (of_zero / total).tolist()}
        found.append(pd.DataFrame({"prompt": range(P), "G": G, **columns}))
    return pd.concat(found, ignore_index=True)


def _groups(size: int, repeats: int, generator: torch.Generator, *values: Tensor) -> list[Tensor]:
    """For each (P, K) tensor, (P * repeats, size): groups drawn without putting back, the same draws for all."""
    P, K = values[0].shape
    if size > K:
        raise ValueError(f"A group of {size} cannot be drawn from {K} rollouts.")
    draws = torch.rand(P * repeats, K, generator=generator).topk(size).indices
    return [x.repeat_interleave(repeats, 0).gather(1, draws) for x in values]


def _baseline(r: Tensor, G: int, baseline: str, scale: str) -> tuple[Tensor, Tensor]:
    """Advantages, and which rows count, from groups of G + 1."""
    if baseline == "median":
        return median_pivot(r, scale)
    rows = r if baseline == "mean_plus_one" else r[:, :G]
    A = leave_one_out(rows) if baseline == "leave_one_out" else mean_centered(rows)
    return A, torch.ones_like(rows, dtype=torch.bool)


def _mc_grpo(ctx: Context) -> Any:
    assert ctx.rewards is not None
    o = ctx.options
    if o["baseline"] == "mean":  # everything else of the method without its idea: Dr. GRPO
        return mean_centered(ctx.rewards)
    if o["baseline"] != "median":
        raise ValueError(f"baseline is 'median' or 'mean', not {o['baseline']!r}.")
    return median_pivot(ctx.rewards, o["scale"], o["eps"], o["floor"], o["rescale"])


def _flipped_signs(ctx: Context) -> Tensor:
    assert ctx.rewards is not None
    return flip_signs(mean_centered(ctx.rewards), ctx.options["flip_probability"], ctx.seed, ctx.step)


def _with_extra(settings: Any) -> int:
    return settings["num_generations"] + settings["extra"]


PLAIN_LOSS = {"loss_type": "dr_grpo", "scale_rewards": "none"}

MC_GRPO = Method(
    "mc_grpo",
    summary="the median of G + 1 rollouts as baseline; the pivot row is not trained",
    paper="2601.22582",
    parent="dr_grpo",
    config={"num_generations": _with_extra, **PLAIN_LOSS},
    options={"baseline": "median", "extra": 1, "scale": "none", "eps": 1e-3, "floor": 0.25, "rescale": False},
    reduces_to={"baseline": "mean", "extra": 0},
    advantage=_mc_grpo,
)

MEAN_PLUS_ONE = Method(
    "mean_plus_one",
    summary="control for the median: the mean over G + 1 rollouts, all of them trained",
    parent="dr_grpo",
    config={"num_generations": _with_extra, **PLAIN_LOSS},
    options={"extra": 1},
    reduces_to={"extra": 0},
)

FLIPPED_SIGNS = Method(
    "flipped_signs",
    summary="ablation: some advantages get the wrong sign",
    paper="2601.22582",
    parent="dr_grpo",
    config=PLAIN_LOSS,
    options={"flip_probability": 0.1},
    reduces_to={"flip_probability": 0.0},
    advantage=_flipped_signs,
)

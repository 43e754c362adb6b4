"""D3S: train on few rollouts and few tokens, those with the widest advantages and the highest |A| times entropy.

Paper: arXiv 2509.22115 (known here from two reading notes that agree, and from its reviews). With A the z-score of
the reward in its group and H the entropy of the policy at a token:

    rows    keep the subset of each group with the largest Var(A), then the same across groups (A is not computed again)
    tokens  keep the share K of all tokens with the largest |A_t| * H_t
    the shares grow linearly in training progress p: share(p) = (1 - p) * first + p * last

The subset of size k with the largest variance is always some of the lowest values and some of the highest.

What is different here, and why. The paper's first and last shares could not be found; ours are 1/2 to 1 in each of
the two row stages, so 1/4 to 1 of the rows, and 1/10 to 1 of the tokens. Rows that leave take their tokens out of the
loss's denominator; tokens that leave do not (rlkit's rule for weights), so early steps are also smaller: a control
with random tokens at the same share has the same scale. Unscorable rollouts leave first.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.grpo import standardized


def max_variance_subset(values: Tensor, k: int) -> Tensor:
    """The `k` values with the largest (population) variance: some of the lowest and some of the highest.

    Args:
        values: (n,); NaN is never chosen, unless all n are wanted.
        k: how many; at most the number of values.

    Returns:
        (n,) bool. Among equal variances the one with more high values.

    """
    if k >= len(values):
        return torch.ones_like(values, dtype=torch.bool)
    order = values.argsort(stable=True)[: int((~values.isnan()).sum())]  # NaN sorts last
    n = len(order)
    k = min(k, n)
    chosen = torch.zeros_like(values, dtype=torch.bool)
    if k == 0:
        return chosen
    x = values[order].double()
    sums, squares = (torch.cat([x.new_zeros(1), (x - x.mean()).pow(p).cumsum(0)]) for p in (1, 2))
    low = torch.arange(k + 1, device=values.device)  # so many of the lowest, k - low of the highest
    total, square = (s[low] + s[n] - s[n - k + low] for s in (sums, squares))
    best = int((square / k - (total / k) ** 2).argmax())
    chosen[order[:best]] = True
    chosen[order[n - k + best :]] = True
    return chosen


def keep_rows(advantages: Tensor, within: float, across: float) -> Tensor:
    """Both row stages.

    Args:
        advantages: (N, G); NaN where unscorable.
        within: share of each group's rollouts that stay, at least two of them.
        across: share of what is left that stays, over all groups.

    Returns:
        keep (N, G) bool.

    """
    sizes = [max(2, round(within * int((~a.isnan()).sum()))) if within < 1 else a.numel() for a in advantages]
    keep = torch.stack([max_variance_subset(a, size) for a, size in zip(advantages, sizes, strict=True)])
    if across < 1:
        left = advantages.masked_fill(~keep, torch.nan).flatten()
        keep = max_variance_subset(left, max(2, round(across * int((~left.isnan()).sum())))).view_as(keep)
    return keep if keep.any() else ~keep  # nothing could be scored


def top_tokens(score: Tensor, mask: Tensor, share: float) -> Tensor:
    """Weight 1 on the `share` of the tokens with the highest score, at least one, else 0.

    Args:
        score: (B, T), here |A| * H.
        mask: (B, T) 1 where a token counts.
        share: 0 to 1.

    Returns:
        (B, T) of 0 and 1; among equal scores the first.

    """
    size = max(1, math.ceil(share * int(mask.sum())))
    ranked = score.masked_fill(mask == 0, -torch.inf).flatten().sort(descending=True, stable=True).indices
    weight = torch.zeros(score.numel(), device=score.device)
    weight[ranked[:size]] = 1.0
    return weight.view_as(score)


def scheduled(shares: tuple[float, float], step: int, max_steps: int) -> float:
    """The share at `step`: linear from the first to the last step of the run."""
    first, last = shares
    return first + (last - first) * min(1.0, step / max(1, max_steps - 1))


def _advantage(ctx: Context) -> tuple[Tensor, Tensor]:
    assert ctx.rewards is not None
    A = standardized(ctx.rewards)
    within, across = (scheduled(ctx.options[name], ctx.step, ctx.max_steps) for name in ("within", "across"))
    return A, keep_rows(A, within, across)


def _token_weight(ctx: Context) -> Tensor:
    assert ctx.advantages is not None and ctx.entropies is not None and ctx.mask is not None
    share = scheduled(ctx.options["tokens"], ctx.step, ctx.max_steps)
    return top_tokens(ctx.advantages.abs() * ctx.entropies, ctx.mask, share)


D3S = Method(
    "d3s",
    summary="fewer rows by advantage variance, fewer tokens by |A| times entropy, on a schedule",
    paper="2509.22115",
    parent="grpo",
    options={"within": (0.5, 1.0), "across": (0.5, 1.0), "tokens": (0.1, 1.0)},
    reduces_to={"within": (1.0, 1.0), "across": (1.0, 1.0), "tokens": (1.0, 1.0)},
    advantage=_advantage,
    token_weight=_token_weight,
    pooled=True,
)

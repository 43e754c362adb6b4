"""MinPRO: weigh a token by its own ratio and the smallest ratio before it, instead of by the product of all of them.

Paper: arXiv 2601.22718 (abstract; the form from two independent second-hand sources). On stale rollouts the exact
weight of token t is the product of rho_1 .. rho_t, which explodes or vanishes with length. In its place:

    w_t = rho_t * min_{i < t} rho_i,   w_1 = rho_1
    J = sg(w_t) A log pi(y_t)

What is different here, and why. Where the clip stands, whether w is detached, and whether the minimum is capped at 1
could not be found. Ours: w is detached (sg), as in CISPO, and

    rule="capped"     w_t = clip(rho_t, 1 - epsilon, 1 + epsilon_high) * min(1, min_{i < t} rho_i)      the default
    rule="product"    w_t = rho_t * min_{i < t} rho_i, as above
    rule="token"      PPO's clipped objective of rho_t: the parent

The minimum is one-sided: one very unlikely token damps all that follow it for ever.
"""

from __future__ import annotations

import torch
from torch import Tensor


def smallest_before(ratio: Tensor, mask: Tensor) -> Tensor:
    """Min over i < t of rho_i, and 1 for the first token; tokens outside the mask do not count.

    Args:
        ratio: (B, T).
        mask: (B, T) 1 where a token counts.

    Returns:
        (B, T); 1 where no token counted before.

    """
    running = ratio.masked_fill(mask == 0, torch.inf).cummin(1).values
    before = torch.cat([torch.full_like(running[:, :1], torch.inf), running[:, :-1]], 1)
    return before.masked_fill(before.isinf(), 1.0)


def prefix_weight(
    ratio: Tensor, mask: Tensor, epsilon: float | None = None, epsilon_high: float | None = None
) -> Tensor:
    """MinPRO's weight, (B, T): "product" without `epsilon`, "capped" with it."""
    smallest = smallest_before(ratio, mask)
    if epsilon is None:
        return ratio * smallest
    return ratio.clamp(1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high)) * smallest.clamp(max=1.0)

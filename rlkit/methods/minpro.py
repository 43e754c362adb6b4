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

from rlkit.method import Context, Method
from rlkit.methods.gspo import clipped, loss_time


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


def objective(ctx: Context) -> Tensor:
    """The `surrogate` hook."""
    log_ratio, A, mask = loss_time(ctx)
    assert ctx.logps is not None
    rule, epsilon, high = (ctx.options[name] for name in ("rule", "epsilon", "epsilon_high"))
    ratio = log_ratio.exp()
    if rule == "token":
        return clipped(ratio, A, 1 - epsilon, 1 + high)
    if rule not in ("capped", "product"):
        raise ValueError(f"rule is 'capped', 'product' or 'token', not {rule!r}.")
    bounds = (epsilon, high) if rule == "capped" else (None, None)
    weight = prefix_weight(ratio.detach(), mask, *bounds)
    ctx.log("minpro/largest", float((weight * mask).max()))
    return weight * A * ctx.logps


MINPRO = Method(
    "minpro",
    summary="a stale token is weighted with the smallest ratio before it, not with their product",
    paper="2601.22718",
    parent="grpo",
    options={"rule": "capped", "epsilon": 0.2, "epsilon_high": 0.2},
    reduces_to={"rule": "token"},
    surrogate=objective,
)

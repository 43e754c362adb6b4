"""BAPO: clip bounds chosen for each batch, so that tokens with a positive advantage keep their share of the update.

Paper: arXiv 2510.18927 (released code read; the paper's rule from one detailed note). Bounds are ratios. With rho_t =
pi(y_t) / pi_old(y_t), over the tokens of a batch:

    S+ = sum_{A > 0} min(rho, c_high) A        S- = sum_{A < 0} max(rho, c_low) |A|        share = S+ / (S+ + S-)
    start at (c_low, c_high) = (.6, 1.2); while share < target: c_high += .05 up to 3.0, then c_low += .02 up to .9
    J = min(rho A, clip(rho, c_low, c_high) A), for A < 0 at least 3 A     (dual clip)

What is different here, and why. Three targets are around: .4 in a note on the paper, .5 in the authors' README, and a
script whose number means 1/3. Ours is the README's. The code raises c_low first (`order="low_first"`), the paper
c_high: the default, because S- can only grow with c_low, so that raising c_low never brings the measured share up,
although it takes the gradient away from negative tokens with rho < c_low. For the same reason two shares are logged:
of the values, as above, and of the gradient (`bapo/gradient_share`, tokens that are not clipped). The code multiplies
nothing by pi_old, nor do we. A batch without positive or without negative tokens has nothing to balance and keeps the
first bounds.
"""

from __future__ import annotations

import math

from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.gspo import clipped, loss_time

ROUNDING = 1e-6
"""A share this far under the target is at it: sums of 32-bit ratios are no more exact."""
SEARCH = {"target": 0.5, "low": (0.6, 0.9), "high": (1.2, 3.0), "steps": (0.02, 0.05), "order": "high_first"}
ORDERS = {"high_first": ("high", "low"), "low_first": ("low", "high")}


def positive_share(ratio: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float) -> float:
    """S+ / (S+ + S-), from (B, T) tensors and the bounds of the ratio; NaN if every advantage is 0."""
    terms = (ratio.clamp(max=high) * advantages.clamp(min=0), ratio.clamp(min=low) * advantages.clamp(max=0).abs())
    positive, negative = (float((term * mask).double().sum()) for term in terms)
    return positive / (positive + negative) if positive + negative else float("nan")


def gradient_share(ratio: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float) -> float:
    """The same for rho |A| over the tokens that are not clipped, which is what carries gradient."""
    open_ = ((advantages > 0) & (ratio <= high)) | ((advantages < 0) & (ratio >= low))
    weight = (ratio * advantages.abs() * mask * open_).double()
    total = float(weight.sum())
    return float(weight[advantages > 0].sum()) / total if total else float("nan")


def adaptive_bounds(
    ratio: Tensor,
    advantages: Tensor,
    mask: Tensor,
    target: float = 0.5,
    low: tuple[float, float] = (0.6, 0.9),
    high: tuple[float, float] = (1.2, 3.0),
    steps: tuple[float, float] = (0.02, 0.05),
    order: str = "high_first",
) -> tuple[float, float]:
    """The batch's clip bounds.

    Args:
        ratio: (B, T) pi / pi_old.
        advantages: (B, T).
        mask: (B, T) 1 where a token counts.
        target: smallest share of the positive tokens.
        low: first and largest c_low.
        high: first and largest c_high.
        steps: by how much c_low and c_high grow.
        order: "high_first" (the paper) or "low_first" (the code).

    Returns:
        c_low and c_high.

    """
    if order not in ORDERS:
        raise ValueError(f"order is 'high_first' or 'low_first', not {order!r}.")
    bounds = {"low": low[0], "high": high[0]}
    signs = advantages[mask.bool()]
    if not ((signs > 0).any() and (signs < 0).any()):
        return bounds["low"], bounds["high"]
    ends = {"low": (steps[0], low[1]), "high": (steps[1], high[1])}
    for side in ORDERS[order]:
        step, last = ends[side]
        while bounds[side] < last and positive_share(ratio, advantages, mask, **bounds) < target - ROUNDING:
            bounds[side] = min(round(bounds[side] + step, 10), last)
    return bounds["low"], bounds["high"]


def dual_clipped(ratio: Tensor, advantages: Tensor, low: float, high: float, dual: float = 3.0) -> Tensor:
    """PPO's objective with bounds of the ratio; for A < 0 never below dual * A. (B, T) each."""
    objective = clipped(ratio, advantages, low, high)
    return objective.where(advantages >= 0, objective.maximum(dual * advantages))


def objective(ctx: Context) -> Tensor:
    """The `surrogate` hook."""
    log_ratio, A, mask = loss_time(ctx)
    o = ctx.options
    ratio = log_ratio.clamp(-20, 20).exp()
    rho = ratio.detach()
    low, high = adaptive_bounds(rho, A, mask, **{name: o[name] for name in SEARCH})
    shares = (share(rho, A, mask, low, high) for share in (positive_share, gradient_share))
    for name, value in zip(("low", "high", "share", "gradient_share"), (low, high, *shares), strict=True):
        ctx.log(f"bapo/{name}", value)
    return dual_clipped(ratio, A, low, high, o["dual"])


BAPO = Method(
    "bapo",
    summary="clip bounds chosen for each batch so that positive tokens keep their share",
    paper="2510.18927",
    parent="grpo",
    options={**SEARCH, "dual": 3.0},
    reduces_to={"target": 0.0, "low": (0.8, 0.8), "high": (1.2, 1.2), "dual": math.inf},
    surrogate=objective,
    pooled=True,
)

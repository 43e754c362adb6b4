"""M2PO: on stale rollouts, leave out the fewest tokens that bring the second moment of the log ratio under a threshold.

Paper: arXiv 2510.01161 (two reading notes that agree; the released code was read). With rho_t = pi(y_t) /
pi_old(y_t), the tokens at which a step moves the policy further away from the one that drew them are

    H = {A > 0 and rho > 1} u {A < 0 and rho < 1}
    mask the largest (log rho)^2 of H one by one until their mean over the rest of H is at most tau = .04
    J = sum of rho A over all tokens that are left / all tokens       no other clip

What is different here, and why. The paper and its code differ. The code masks nothing: it turns the budget into one
cap c and clips the ratio to [exp(-c), exp(c)], which zeroes the gradient of tokens beyond c, as a mask does, but
picks another c. `rule="mask"` is the paper's and the default; `rule="release"` is the code's c, an order statistic:
the largest |log rho| of H at which the capped sum stays in the budget, 0 if none does; `rule="exact"` solves for c.
The code reads a row's sign from its first token; here every token has its own. H is that of the whole accumulation
window, so that the result does not depend on the size of micro-batches. `rule="clip"` is PPO's fixed clip
(`epsilon`), the parent.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.gspo import clipped, loss_time


def drifting(log_ratio: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """H: the tokens (B, T) bool whose update moves pi further from pi_old. All arguments (B, T)."""
    return ((advantages > 0) & (log_ratio > 0) | (advantages < 0) & (log_ratio < 0)) & mask.bool()


def second_moment(log_ratio: Tensor, among: Tensor) -> float:
    """Mean of (log rho)^2 over the tokens in `among`, both (B, T); 0 if there are none."""
    return float(log_ratio[among].double().square().mean()) if among.any() else 0.0


def trusted_tokens(log_ratio: Tensor, advantages: Tensor, mask: Tensor, tau: float = 0.04) -> Tensor:
    """The paper's mask.

    Args:
        log_ratio: (B, T) log pi - log pi_old.
        advantages: (B, T).
        mask: (B, T) 1 where a token counts.
        tau: largest mean of (log rho)^2 over the trained tokens of H.

    Returns:
        (B, T) bool, False for the tokens that are left out; tokens outside H are always True.

    """
    harmful = drifting(log_ratio, advantages, mask)
    squares, order = log_ratio[harmful].double().square().sort(stable=True)
    means = squares.cumsum(0) / torch.arange(1, len(squares) + 1, device=squares.device)
    fits = torch.empty_like(harmful[harmful])
    fits[order] = means <= tau  # the mean over the smallest grows with each token that joins
    trusted = torch.ones_like(harmful)
    trusted[harmful] = fits
    return trusted


def cap(squares: Tensor, tau: float = 0.04, exact: bool = False) -> float:
    """The code's c: a bound on |log rho| under which the mean of min(square, c^2) is at most `tau`.

    Args:
        squares: (n,) (log rho)^2 of the tokens in H.
        tau: the budget.
        exact: solve mean = tau instead of taking one of the values.

    Returns:
        c in nats; infinity where nothing has to be capped.

    """
    x = squares.double().sort().values
    n = len(x)
    if n == 0 or float(x.mean()) <= tau:
        return math.inf
    smaller = x.cumsum(0) - x  # sum of those before
    rest = n - torch.arange(n, device=x.device)
    if exact:
        c = (tau * n - smaller) / rest
        return math.sqrt(float(c[c <= x][0]))
    fits = smaller + x * rest <= tau * n
    return math.sqrt(float(x[fits].max())) if fits.any() else 0.0


def objective(ctx: Context) -> Tensor:
    """The `surrogate` hook."""
    log_ratio, A, mask = loss_time(ctx)
    ratio, d, o = log_ratio.exp(), log_ratio.detach(), ctx.options
    harmful = drifting(d, A, mask)
    if o["rule"] == "clip":
        return clipped(ratio, A, 1 - o["epsilon"], 1 + o["epsilon"])
    if o["rule"] == "mask":
        trusted = trusted_tokens(d, A, mask, o["tau"])
    elif o["rule"] in ("release", "exact"):
        c = cap(d[harmful].square(), o["tau"], o["rule"] == "exact")
        trusted = ~harmful | (d.abs() <= c)
    else:
        raise ValueError(f"rule is 'mask', 'release', 'exact' or 'clip', not {o['rule']!r}.")
    ctx.log("m2po/second_moment", second_moment(d, harmful))
    ctx.log("m2po/second_moment_kept", second_moment(d, harmful & trusted))
    ctx.log("m2po/masked", float((~trusted).sum() / mask.sum().clamp(min=1)))
    return ratio * A * trusted


M2PO = Method(
    "m2po",
    summary="the fewest stale tokens are masked that bring the second moment of the log ratio under tau",
    paper="2510.01161",
    parent="grpo",
    options={"rule": "mask", "tau": 0.04, "epsilon": 0.2},
    reduces_to={"rule": "clip"},
    surrogate=objective,
    pooled=True,
)

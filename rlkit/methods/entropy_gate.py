"""Entropy gates: full updates at tokens where the policy is unsure, less at those where it is sure.

With H_t the entropy of the policy at a token and q the quantile of H over the batch above which a share of the tokens
lies:

    top_entropy   g_t = 1 if H_t >= q else 0             arXiv 2506.01939; TRL's `top_entropy_quantile`
    egspo         g_t = 1 if H_t >= q else phi_t         arXiv 2602.03309
                  phi_t = p_t (1 - p_t), p_t = pi(y_t), without gradient

g_t multiplies the advantage, so its sign and the loss's denominator stay.

What is different here, and why. `top_entropy` restates the rule that TRL has, with the share .2 that its paper
recommends, as an example of the `token_weight` seam; q is that of the whole accumulation window, TRL's that of a
micro-batch. Of EGSPO the abstract and introduction could be read: they name a gate and a "phi-attenuated" branch
after CHORD, whose phi is p (1 - p) in four notes on it. That EGSPO's phi is the same is an inference. `low` can be a
constant instead (0 is `top_entropy`, 1 is the parent). The share .2 is ours, after the paper above. Its first stage,
supervised fine-tuning, is left out: the base is trained already.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlkit.method import Context, Method


def top_entropy(entropies: Tensor, mask: Tensor, share: float = 0.2) -> Tensor:
    """Which tokens are unsure: (B, T) bool, entropy at or above the quantile 1 - share of the tokens in the mask.

    Args:
        entropies: (B, T) nats.
        mask: (B, T) 1 where a token counts.
        share: 0 to 1; 1 takes all tokens, 0 the one with the highest entropy.

    """
    counted = mask.bool()
    if not counted.any():
        return counted
    return (entropies >= torch.quantile(entropies[counted].float(), 1 - share)) & counted


def attenuation(logps: Tensor) -> Tensor:
    """CHORD's phi = p (1 - p) of the sampled token, from its log-prob (nats); at most 1/4. Any shape."""
    p = logps.exp()
    return p * (1 - p)


def entropy_gate(
    entropies: Tensor, logps: Tensor, mask: Tensor, share: float = 0.2, low: float | str = "p(1-p)"
) -> Tensor:
    """Token weights: 1 above the quantile, `low` below it.

    Args:
        entropies: (B, T) nats.
        logps: (B, T) nats.
        mask: (B, T) 1 where a token counts.
        share: of the tokens that get weight 1.
        low: a constant, or "p(1-p)".

    Returns:
        (B, T), at least 0.

    """
    if isinstance(low, str) and low != "p(1-p)":
        raise ValueError(f"low is a number or 'p(1-p)', not {low!r}.")
    below = attenuation(logps) if isinstance(low, str) else torch.full_like(logps, low)
    return below.where(~top_entropy(entropies, mask, share), torch.ones_like(below))


def mean_weight(weight: Tensor, mask: Tensor) -> float:
    """Mean weight of the tokens in the mask, both (B, T): the share of the update that a gate leaves."""
    return float((weight * mask).sum() / mask.sum().clamp(min=1))


def _top_entropy(ctx: Context) -> Tensor:
    assert ctx.entropies is not None and ctx.mask is not None
    weight = top_entropy(ctx.entropies, ctx.mask, ctx.options["share"]).float()
    ctx.log("gate/weight", mean_weight(weight, ctx.mask))
    return weight


def _egspo(ctx: Context) -> Tensor:
    assert ctx.entropies is not None and ctx.logps is not None and ctx.mask is not None
    weight = entropy_gate(ctx.entropies, ctx.logps, ctx.mask, ctx.options["share"], ctx.options["low"])
    ctx.log("gate/weight", mean_weight(weight, ctx.mask))
    return weight


TOP_ENTROPY = Method(
    "top_entropy",
    summary="only the tokens with the highest entropy are trained",
    paper="2506.01939",
    parent="grpo",
    options={"share": 0.2},
    reduces_to={"share": 1.0},
    token_weight=_top_entropy,
    pooled=True,
)

EGSPO = Method(
    "egspo",
    summary="full updates at tokens of high entropy, attenuated ones elsewhere",
    paper="2602.03309",
    parent="grpo",
    options={"share": 0.2, "low": "p(1-p)"},
    reduces_to={"low": 1.0},
    token_weight=_egspo,
    pooled=True,
)

"""RLSC: no verifier; the policy is made more confident of what it already says.

Paper: arXiv 2506.06395 (abstract; equations and settings second-hand). It raises F = E_{y ~ p}[p(y | x)], through

    L = -sum over drawn y of (p_old(y | x) + alpha) log p(y | x),   alpha = .1

with p_old(y | x) the frozen probability of the whole completion, drawn at temperature .5.

What is different here, and why. The completion's probability is the reward, reward + alpha the advantage: no group,
no baseline. The loss sums over tokens and divides by a constant (`loss_type="dr_grpo"`). The text leaves open whether
a drawn y gets an extra 1 / p: as written with y ~ p_old, the weight is p_old + alpha itself, which is what we do.
TRL's log-probs are those of the tempered policy, in the weight as in the gradient; the paper scores at temperature 1.
At the lengths of real answers p_old is exp(-30) or less: the weight is then alpha to 13 digits, and RLSC is
fine-tuning on its own samples. On the tiny tasks both terms count. `confidence=False` and `alpha=0` are the controls,
one term each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rlkit.method import Context, Method


def confidence(completions: Sequence[Any], logps: Sequence[Tensor] | None = None, **columns: Any) -> list[float | None]:
    """Reward p_old(y | x), 0 to 1, from the log-probs (nats) of each completion's tokens; None where not known."""
    if logps is None:
        return [None] * len(completions)
    return [math.exp(float(row.double().sum())) for row in logps]


def sharpened(probabilities: Tensor, alpha: float = 0.1, use_confidence: bool = True) -> Tensor:
    """RLSC's weight p_old + alpha of each completion. (N, G) -> (N, G), NaN where p_old is."""
    return probabilities * float(use_confidence) + alpha


def _advantage(ctx: Context) -> Tensor:
    assert ctx.rewards is not None
    return sharpened(ctx.rewards, ctx.options["alpha"], ctx.options["confidence"])


RLSC = Method(
    "rlsc",
    summary="no verifier: the weight is the policy's own probability of the completion",
    paper="2506.06395",
    parent="dr_grpo",
    no_reduction="it has no verifier and no baseline: reward and advantage are both replaced",
    config={"loss_type": "dr_grpo", "scale_rewards": "none", "temperature": 0.5},
    options={"alpha": 0.1, "confidence": True},
    reward=confidence,
    advantage=_advantage,
    needs=frozenset({"logps"}),
)

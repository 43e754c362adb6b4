"""TIP: distil at the tokens that matter, chosen by the student's entropy and its divergence from the teacher.

Paper: arXiv 2604.14084 (read as version 4). With h_t the student's entropy over ln V and delta_t = KL(p_S || p_T), both
brought to [0, 1] over the batch (h clipped at its 98th percentile first), each token has the score (eq. 7)

    s_t = h + delta - h delta = 1 - (1 - h)(1 - delta)        Soft-OR: high where either is

and in each rollout of m tokens the floor(rho m) highest scores are kept (eq. 8). The loss is the mean over kept tokens
(eq. 9) of the same reverse KL as without selection. Entropy alone is blind to what the paper calls Q3, tokens at which
the student is confident and wrong; the score for those is `KL(p_T || p_S) (1 - h)`, and only there the forward KL is
used, to rank.

The selectors of the paper's tables, a method each: `tip` (Soft-OR), `tip_entropy_sampling` (drawn without replacement,
p ~ h; the paper's "entropy-only"), `tip_q3`, `tip_divergence`, `tip_bottom` (the lowest Soft-OR).

What is different here, and why. `tip_entropy` takes the highest entropies instead of drawing: the paper compares a
drawn set with a ranked one, so that part of its gap may be noise. `tip_random` is the control that the paper lacks.
"Batch" is the rollouts of one optimiser step on all ranks (the paper does not say which batch), so that nothing depends
on how they are cut into micro-batches. At least one token a rollout is kept; equal scores go to the earlier token.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlkit.method import Context, Method


def normalised(values: Tensor, mask: Tensor) -> Tensor:
    """(B, T) in [0, 1]: min-max over the batch's tokens; 0 outside the mask, and everywhere if all are equal."""
    inside = values[mask > 0]
    if not len(inside):
        return torch.zeros_like(values)
    low, high = inside.min(), inside.max()
    return ((values - low) / (high - low).clamp(min=1e-12)).masked_fill(mask == 0, 0.0)


def normalised_entropy(entropies: Tensor, mask: Tensor, clip: float = 0.98) -> Tensor:
    """(B, T) in [0, 1]: entropies (nats or over ln V, which is the same here) cut at a quantile, then min-max."""
    inside = entropies[mask > 0]
    if not len(inside):
        return torch.zeros_like(entropies)
    return normalised(entropies.clamp(max=torch.quantile(inside.float(), clip)), mask)


def soft_or(h: Tensor, d: Tensor) -> Tensor:
    """Eq. 7 on inputs in [0, 1], any shape: (0, 0) gives 0, (1, x) gives 1."""
    return h + d - h * d


def overconfident_and_wrong(forward: Tensor, h: Tensor) -> Tensor:
    """The Q3 score KL(p_T || p_S) (1 - h): forward KL in nats, entropy in [0, 1], any shape."""
    return forward * (1 - h)


def kept_counts(mask: Tensor, retention: float) -> Tensor:
    """(B,) floor(retention m) of each rollout's m tokens, at least 1 where there is a token.

    Raises:
        ValueError: retention is not in (0, 1].

    """
    if not 0 < retention <= 1:
        raise ValueError(f"retention is the share of tokens that are kept, above 0 and at most 1, not {retention}.")
    m = (mask > 0).sum(1)
    return torch.minimum((retention * m + 1e-6).floor().long().clamp(min=1), m)


def top_per_rollout(score: Tensor, mask: Tensor, retention: float, lowest: bool = False) -> Tensor:
    """Eq. 8: (B, T) 1 at each rollout's highest (or lowest) scores, 0 elsewhere and outside the mask."""
    key = (score if lowest else -score).masked_fill(mask == 0, math.inf)
    rank = key.argsort(dim=1, stable=True).argsort(dim=1)
    return ((rank < kept_counts(mask, retention)[:, None]) & (mask > 0)).float()


def sampled_per_rollout(score: Tensor, mask: Tensor, retention: float, generator: torch.Generator) -> Tensor:
    """(B, T) 1 at tokens drawn without replacement in each rollout, with p ~ score >= 0.

    The largest of log(score) plus Gumbel noise are such a draw. A number is drawn a token, so that padding moves none.
    """
    at = mask > 0
    uniform = torch.rand(int(at.sum()), generator=generator).clamp(1e-20, 1 - 1e-7).to(score.device)
    noisy = torch.zeros_like(score, dtype=torch.float32)
    noisy[at] = score[at].float().clamp(min=1e-8).log() - (-uniform.log()).log()
    return top_per_rollout(noisy, mask, retention)


def quadrants(h: Tensor, divergence: Tensor, mask: Tensor, h_cut: float = 0.2, d_cut: float = 0.5) -> Tensor:
    """(B, T) the paper's quadrant of each token, 0 outside the mask. It gives no cuts: these are ours.

    Args:
        h: entropy over ln V, (B, T).
        divergence: reverse KL in nats, (B, T).
        mask: (B, T).
        h_cut: high entropy is above it.
        d_cut: high divergence is above it.

    Returns:
        1 uncertain and wrong, 2 uncertain and right, 3 confident and wrong, 4 confident and right.

    """
    high_h, high_d = h > h_cut, divergence > d_cut
    return (1 + (~high_d).long() + 2 * (~high_h).long()).masked_fill(mask == 0, 0)


def _inputs(ctx: Context) -> tuple[Tensor, Tensor, float]:
    """Normalised entropy, mask and retention."""
    assert ctx.entropies is not None and ctx.mask is not None
    return normalised_entropy(ctx.entropies, ctx.mask), ctx.mask, ctx.options["retention"]


def _divergence(ctx: Context) -> Tensor:
    assert ctx.divergence is not None and ctx.mask is not None
    return normalised(ctx.divergence, ctx.mask)


def _generator(ctx: Context) -> torch.Generator:
    """Draws are a function of the run's seed and the step."""
    return torch.Generator().manual_seed(1_000_003 * ctx.seed + ctx.step)


def by_soft_or(ctx: Context) -> Tensor:
    """The highest Soft-OR scores."""
    h, mask, retention = _inputs(ctx)
    return top_per_rollout(soft_or(h, _divergence(ctx)), mask, retention)


def by_lowest_soft_or(ctx: Context) -> Tensor:
    """The lowest Soft-OR scores."""
    h, mask, retention = _inputs(ctx)
    return top_per_rollout(soft_or(h, _divergence(ctx)), mask, retention, lowest=True)


def by_entropy(ctx: Context) -> Tensor:
    """The highest entropies."""
    assert ctx.entropies is not None
    _, mask, retention = _inputs(ctx)
    return top_per_rollout(ctx.entropies, mask, retention)


def by_drawn_entropy(ctx: Context) -> Tensor:
    """Drawn with p ~ entropy."""
    assert ctx.entropies is not None
    _, mask, retention = _inputs(ctx)
    return sampled_per_rollout(ctx.entropies, mask, retention, _generator(ctx))


def by_q3(ctx: Context) -> Tensor:
    """The most overconfident and wrong."""
    assert ctx.forward is not None
    h, mask, retention = _inputs(ctx)
    return top_per_rollout(overconfident_and_wrong(ctx.forward, h), mask, retention)


def by_divergence(ctx: Context) -> Tensor:
    """The highest reverse KL."""
    _, mask, retention = _inputs(ctx)
    return top_per_rollout(_divergence(ctx), mask, retention)


def at_random(ctx: Context) -> Tensor:
    """Drawn with equal chances."""
    _, mask, retention = _inputs(ctx)
    return sampled_per_rollout(torch.ones_like(mask, dtype=torch.float32), mask, retention, _generator(ctx))


def _selector(name: str, summary: str, weight: object, needs: frozenset[str] = frozenset()) -> Method:
    return Method(
        name,
        summary=summary,
        paper="2604.14084",
        trainer="distill",
        parent="opd",
        options={"retention": 0.5},
        reduces_to={"retention": 1.0},
        token_weight=weight,  # type: ignore[arg-type]
        needs=needs,
        pooled=True,
    )


TIP = _selector("tip", "distils at tokens of high entropy or high divergence (Soft-OR)", by_soft_or)
TIP_ENTROPY = _selector("tip_entropy", "distils at the tokens of highest entropy", by_entropy)
TIP_ENTROPY_SAMPLING = _selector(
    "tip_entropy_sampling", "distils at tokens drawn in proportion to entropy", by_drawn_entropy
)
TIP_Q3 = _selector("tip_q3", "distils where the student is confident and wrong", by_q3, frozenset({"forward"}))
TIP_DIVERGENCE = _selector("tip_divergence", "distils at the tokens of highest divergence", by_divergence)
TIP_RANDOM = _selector("tip_random", "control: distils at tokens drawn at random", at_random)
TIP_BOTTOM = _selector("tip_bottom", "control: distils at the tokens of lowest Soft-OR", by_lowest_soft_or)

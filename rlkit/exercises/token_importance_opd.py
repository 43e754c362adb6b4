"""Exercises of the notebook `token_importance_opd`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rlkit import divergences
from rlkit.exercises.exercise import Case, Exercise
from rlkit.methods import tip


def _random(size: tuple[int, ...], seed: int) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(seed))


def _mask(*lengths: int, width: int) -> Tensor:
    """(B, T) 1 at the tokens of rollouts of these lengths."""
    return (torch.arange(width) < torch.tensor(lengths)[:, None]).long()


def top_entropy(entropies: Tensor, mask: Tensor, retention: float) -> Tensor:
    """(B, T) 1 at the floor(retention * m) tokens of highest entropy of each rollout of m tokens, at least one."""
    return tip.top_per_rollout(entropies, mask, retention)


def _entropies() -> Iterator[Case]:
    one = torch.tensor([[0.1, 0.9, 0.5, 0.2]])
    yield Case((one, torch.ones(1, 4).long(), 0.25), note="one rollout of 4 tokens, a quarter of them kept")
    two = torch.tensor([[0.1, 0.2, 0.3, 0.4], [5.0, 6.0, 7.0, 8.0]])
    yield Case((two, torch.ones(2, 4).long(), 0.5), note="every token of the second rollout has the higher entropy")
    padded = torch.tensor([[0.1, 0.9, 0.5, 3.0, 3.0, 3.0]])
    yield Case((padded, _mask(3, width=6), 0.7), note="3 tokens and padding: floor(0.7 * 3) = 2 are kept")
    yield Case((torch.tensor([[0.3, 0.2, 0.4]]), torch.ones(1, 3).long(), 0.1), note="floor gives 0: one token is kept")
    yield Case((one, torch.ones(1, 4).long(), 1.0), note="all are kept")
    for seed, lengths in enumerate(((5, 8, 3), (10, 10, 10, 10), (1, 2, 7))):
        width = max(lengths) + 1
        yield Case((_random((len(lengths), width), seed), _mask(*lengths, width=width), 0.4), note=f"lengths {lengths}")


def _top(entropies: Tensor, mask: Tensor, count: Tensor) -> Tensor:
    """1 at the first `count` (B,) tokens in order of entropy."""
    rank = entropies.masked_fill(mask == 0, -1.0).argsort(1, descending=True).argsort(1)
    return ((rank < count[:, None]) & (mask > 0)).float()


def _over_batch(entropies: Tensor, mask: Tensor, retention: float) -> Tensor:
    flat = tip.top_per_rollout(entropies.reshape(1, -1), mask.reshape(1, -1), retention)
    return flat.view_as(entropies)


def _with_padding(entropies: Tensor, mask: Tensor, retention: float) -> Tensor:
    return tip.top_per_rollout(entropies, torch.ones_like(mask), retention)


TOP_ENTROPY = Exercise(
    what="Which tokens a selection by entropy keeps: the highest floor(retention * m) of each rollout of m tokens.",
    reference=top_entropy,
    cases=_entropies,
    hint="Put the padding last, rank the tokens of each row, and keep ranks below max(1, floor(retention * m)).",
    mistakes={
        "The highest of the whole batch are kept: each rollout has its own share.": _over_batch,
        "Padding was ranked or counted: only tokens where the mask is 1 are there.": _with_padding,
        "The number of kept tokens is floor(retention * m), m the tokens of the rollout, not the width of the batch.": (
            lambda e, m, r: _top(e, m, torch.full((len(e),), max(1, int(r * e.size(1) + 1e-6))))
        ),
        "The number of kept tokens is rounded: it is floor(retention * m).": (
            lambda e, m, r: _top(e, m, (r * m.sum(1)).round().clamp(min=1))
        ),
        "Rollouts in which floor(retention * m) is 0 keep nothing: one token at least is kept.": (
            lambda e, m, r: _top(e, m, (r * m.sum(1) + 1e-6).floor())
        ),
        "These are the lowest entropies.": lambda e, m, r: tip.top_per_rollout(e, m, r, lowest=True),
        "The mask is the wrong way round: 1 means that a token is kept.": (
            lambda e, m, r: (1 - tip.top_per_rollout(e, m, r)) * m
        ),
    },
)


def soft_or(entropies: Tensor, divergence: Tensor, mask: Tensor) -> Tensor:
    """(B, T) Soft-OR score: h + d - h d, entropies cut at the 98th percentile, both min-max over the batch's tokens."""
    h, d = tip.normalised_entropy(entropies, mask), tip.normalised(divergence, mask)
    return tip.soft_or(h, d)


def _scored() -> Iterator[Case]:
    values = torch.tensor([[0.0, 1.0, 0.5, 0.5]]), torch.tensor([[0.0, 2.0, 0.0, 1.0]])
    yield Case((*values, torch.ones(1, 4).long()), note="4 tokens")
    values = torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([[8.0, 0.0], [4.0, 2.0]])
    yield Case((*values, torch.ones(2, 2).long()), note="two rollouts of different range")
    values = torch.tensor([[0.2, 0.6, 9.0]]), torch.tensor([[3.0, 1.0, 9.0]])
    yield Case((*values, _mask(2, width=3)), note="padding with large numbers in it")
    for seed in (0, 1):
        entropies, divergence = 2 * _random((8, 20), seed), 9 * _random((8, 20), seed + 10) ** 3
        yield Case((entropies, divergence, _mask(*range(6, 14), width=20)), note="8 rollouts of 6 to 13 tokens")


def _by_rollout(e: Tensor, d: Tensor, m: Tensor) -> Tensor:
    return torch.cat([soft_or(*row) for row in zip(e.split(1), d.split(1), m.split(1), strict=True)])


def _normed(e: Tensor, d: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    return tip.normalised_entropy(e, m), tip.normalised(d, m)


def _times(e: Tensor, d: Tensor, m: Tensor) -> Tensor:
    h, delta = _normed(e, d, m)
    return h * delta


def _larger(e: Tensor, d: Tensor, m: Tensor) -> Tensor:
    return torch.maximum(*_normed(e, d, m))


def _on_padding(e: Tensor, d: Tensor, m: Tensor) -> Tensor:
    whole = torch.ones_like(m)
    return tip.soft_or(tip.normalised_entropy(e, whole), tip.normalised(d, whole)) * m


SOFT_OR = Exercise(
    what="The Soft-OR score of each token: high where entropy or divergence is, from raw values.",
    reference=soft_or,
    cases=_scored,
    hint="Cut entropies at torch.quantile(those inside the mask, 0.98); then (x - min) / (max - min) over the batch.",
    mistakes={
        "This is the sum: where both are high it goes above 1. Soft-OR takes the product off.": (
            lambda e, d, m: sum(_normed(e, d, m))
        ),
        "This is the product, a soft AND: it misses tokens where only one of the two is high.": _times,
        "This is the larger of the two.": _larger,
        "The entropies were not cut at their 98th percentile.": (
            lambda e, d, m: tip.soft_or(tip.normalised(e, m), tip.normalised(d, m))
        ),
        "The divergence was cut at its 98th percentile too: only the entropies are.": (
            lambda e, d, m: tip.soft_or(tip.normalised_entropy(e, m), tip.normalised_entropy(d, m))
        ),
        "Each rollout was brought to [0, 1] by itself: smallest and largest are those of the batch.": (_by_rollout),
        "Padding went into smallest, largest or percentile.": _on_padding,
        "The values were not brought to [0, 1].": lambda e, d, m: tip.soft_or(e, d) * m,
    },
)


def repaired(log_p: Tensor, log_q: Tensor, h: Tensor) -> Tensor:
    """(B, T) Q3 score KL(q || p) (1 - h): student p and teacher q as log-probs (B, T, V), h (B, T) in [0, 1]."""
    return tip.overconfident_and_wrong(divergences.kl(log_q, log_p), h)


def _logs(*rows: list[float]) -> Tensor:
    return torch.tensor(rows).log()[None]


def _both() -> Iterator[Case]:
    yield Case((_logs([0.9, 0.1]), _logs([0.5, 0.5]), torch.zeros(1, 1)), note="p = (0.9, 0.1), q = (0.5, 0.5)")
    yield Case((_logs([0.5, 0.5]), _logs([0.9, 0.1]), torch.zeros(1, 1)), note="p and q changed over")
    sure = [0.98, 0.01, 0.01]
    pair = _logs(sure, sure), _logs([0.01, 0.98, 0.01], sure)
    yield Case((*pair, torch.tensor([[0.1, 0.1]])), note="sure and wrong, sure and right")
    yield Case((*pair, torch.tensor([[0.9, 0.0]])), note="the wrong token has a high entropy")
    for seed in (0, 1):
        log_p, log_q = ((4 * _random((3, 5, 7), seed + k)).log_softmax(-1) for k in (0, 50))
        yield Case((log_p, log_q, _random((3, 5), seed)), note="3 rollouts of 5 tokens")


REPAIRED = Exercise(
    what="Find the bug: a Q3 score that ranks by the divergence that is trained.",
    reference=repaired,
    cases=_both,
    hint="The score asks how much of what the teacher would write the student has ruled out: KL(teacher || student).",
    mistakes={
        "This is what the broken function gives: KL(p || q), the divergence that is trained.": (
            lambda log_p, log_q, h: divergences.kl(log_p, log_q) * (1 - h)
        ),
        "The factor is 1 - h: a confident student has a low entropy.": lambda p, q, h: divergences.kl(q, p) * h,
        "The factor 1 - h is missing: so the uncertain tokens come first.": lambda p, q, h: divergences.kl(q, p),
        "This is minus the score.": lambda p, q, h: divergences.kl(q, p) * (h - 1),
        "This is the mean over the vocabulary: a KL is the sum.": (
            lambda p, q, h: divergences.kl(q, p) * (1 - h) / p.size(-1)
        ),
    },
)


EXERCISES = {"top_entropy": TOP_ENTROPY, "soft_or": SOFT_OR, "repaired": REPAIRED}

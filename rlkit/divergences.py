"""Divergences between next-token distributions: the one place that computes them. Pure functions on logits.

Letters: R positions, V vocabulary; student p, teacher q. All results are (R,), in nats, and differentiable. The reverse
KL, KL(p || q), is what on-policy distillation minimises; the forward KL is KL(q || p).
"""

from __future__ import annotations

import math

from torch import Tensor, logaddexp


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) = sum_v p(v) (log p(v) - log q(v)), from log-probs (R, V)."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def reverse_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(student || teacher), from logits (R, V)."""
    return kl(student.log_softmax(-1), teacher.log_softmax(-1))


def forward_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student), from logits (R, V)."""
    return kl(teacher.log_softmax(-1), student.log_softmax(-1))


def jsd(student: Tensor, teacher: Tensor, beta: float) -> Tensor:
    """Generalised Jensen-Shannon divergence (arXiv 2306.13649) from logits (R, V), as TRL defines its ends.

    `beta KL(q || m) + (1 - beta) KL(p || m)` with `m = beta q + (1 - beta) p`; 0 is the forward KL, 1 the reverse KL.
    The scale jumps at both ends: near 0 it is beta times the forward KL, near 1 it is (1 - beta) times the reverse KL.

    Raises:
        ValueError: beta is not in [0, 1].

    """
    if not 0 <= beta <= 1:
        raise ValueError(f"beta chooses between forward KL (0) and reverse KL (1), so it cannot be {beta}.")
    if beta == 0:
        return forward_kl(student, teacher)
    if beta == 1:
        return reverse_kl(student, teacher)
    log_p, log_q = student.log_softmax(-1), teacher.log_softmax(-1)
    log_m = logaddexp(log_p + math.log(1 - beta), log_q + math.log(beta))
    return beta * kl(log_q, log_m) + (1 - beta) * kl(log_p, log_m)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of softmax(logits), from (R, V)."""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)

"""On-policy distillation: the student writes, the teacher says at each token what it would have written.

Papers: arXiv 2306.13649 (the family of divergences), doi 10.64434/tml.20251026 (the sampled token), arXiv 2605.07865
(its baseline), arXiv 2603.25562 (the teacher's top K), arXiv 2608.31046 (the control; only second-hand records of it
could be read). Student p, teacher q, at each position of the student's own rollout y:

    full      KL(p || q) = sum_v p(v) (log p(v) - log q(v))
    sampled   -r A,  A = stopgrad(log q(y) - log p(y)),  r = p(y) / stopgrad(p(y))
    top K     KL(p' || q') on the teacher's K best tokens, both renormalised there

The mean over all tokens of the batch is minimised. In expectation the sampled form has the gradient of the full one,
because sum_v p grad log p = 0; it needs only the teacher's log-prob of one token, and varies more. Its baseline adds
KL(p || q), the mean of -A, to A. All of them leave out that the student's choices change which states come next.

What is different here, and why. `opd` is TRL's own `DistillationTrainer` with nothing set; `opd_forward` is its other
end. The paper's top K comes with top-p rollouts and a mask on special tokens, which belong to chat models: set `top_p`
for the first; the second is left out. `opd_no_teacher` is a sceptic's control that no other paper has: a fixed negative
advantage on the drawn tokens that the student itself found unlikely. Where it does as well, the teacher taught nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlkit import divergences
from rlkit.method import Context, Method


def sampled_reverse_kl(student: Tensor, teacher: Tensor, tokens: Tensor, baseline: bool = False) -> Tensor:
    """(R,) -r A of the drawn tokens: its value is the one-sample estimate of the reverse KL (k1), in nats.

    Args:
        student: logits (R, V).
        teacher: logits (R, V).
        tokens: the drawn tokens, (R,).
        baseline: add KL(p || q) to A: the same expected gradient with less variance; the value is then 0 on average.

    """
    log_p, log_q = student.log_softmax(-1), teacher.log_softmax(-1)
    mine, theirs = (x.gather(1, tokens[:, None])[:, 0] for x in (log_p, log_q))
    advantage = (theirs - mine).detach()
    if baseline:
        advantage = advantage + divergences.kl(log_p, log_q).detach()
    return -(mine - mine.detach()).exp() * advantage


def top_k_reverse_kl(student: Tensor, teacher: Tensor, k: int, renormalise: bool = True) -> Tensor:
    """(R,) reverse KL on the teacher's k best tokens, from logits (R, V); k = 0 is the whole vocabulary.

    Without renormalising, the student can lower it by moving its probability away from those tokens.
    """
    if k and renormalise:
        best = teacher.topk(min(k, teacher.size(1)), -1).indices
        return divergences.reverse_kl(student.gather(1, best), teacher.gather(1, best))
    log_p, log_q = student.log_softmax(-1), teacher.log_softmax(-1)
    if k:
        best = teacher.topk(min(k, teacher.size(1)), -1).indices
        log_p, log_q = log_p.gather(1, best), log_q.gather(1, best)
    return divergences.kl(log_p, log_q)


def push_down_unlikely(student: Tensor, tokens: Tensor, threshold: float, advantage: float) -> Tensor:
    """(R,) -r A with A = advantage where the student gave the drawn token less than `threshold`, else 0."""
    mine = student.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    unlikely = (mine.detach().exp() < threshold).to(mine.dtype)
    return -(mine - mine.detach()).exp() * advantage * unlikely


def _sampled(student: Tensor, teacher: Tensor, ctx: Context) -> Tensor:
    return sampled_reverse_kl(student, teacher, ctx.extras["tokens"], ctx.options["baseline"])


def _top_k(student: Tensor, teacher: Tensor, ctx: Context) -> Tensor:
    return top_k_reverse_kl(student, teacher, ctx.options["k"], ctx.options["renormalise"])


def _no_teacher(student: Tensor, teacher: None, ctx: Context) -> Tensor:
    return push_down_unlikely(student, ctx.extras["tokens"], ctx.options["threshold"], ctx.options["advantage"])


def mass_on_top_k(student: Tensor, teacher: Tensor, k: int) -> Tensor:
    """(R,) the student's probability of the teacher's k best tokens, from logits (R, V)."""
    best = teacher.topk(min(k, teacher.size(1)), -1).indices
    return torch.softmax(student, -1).gather(1, best).sum(-1)


OPD = Method(
    "opd",
    summary="reverse KL to the teacher at every token of the student's rollouts: TRL's own trainer",
    paper="2306.13649",
    trainer="distill",
    config={"beta": 1.0},
    no_reduction="it is the root: stock TRL with nothing set",
)

OPD_FORWARD = Method(
    "opd_forward",
    summary="forward KL: the student covers what the teacher might write",
    paper="2306.13649",
    trainer="distill",
    parent="opd",
    config={"beta": 0.0},
    reduces_to={"beta": 1.0},
)

OPD_SAMPLED = Method(
    "opd_sampled",
    summary="policy gradient on the drawn token's log-ratio in place of the whole distribution",
    paper="2605.07865",
    trainer="distill",
    parent="opd",
    options={"baseline": False},
    no_reduction="another estimate of the same gradient: equal in expectation, never in a sample",
    divergence=_sampled,
)

OPD_TOP_K = Method(
    "opd_topk",
    summary="reverse KL on the teacher's best tokens only",
    paper="2603.25562",
    trainer="distill",
    parent="opd",
    options={"k": 32, "renormalise": True},
    reduces_to={"k": 0},
    divergence=_top_k,
)

OPD_NO_TEACHER = Method(
    "opd_no_teacher",
    summary="control without a teacher: unlikely drawn tokens are made less likely",
    paper="2608.31046",
    trainer="distill",
    parent="opd",
    options={"threshold": 0.2, "advantage": -1.0},
    no_reduction="it has no teacher, and its parent is nothing without one",
    teacher="none",
    divergence=_no_teacher,
)

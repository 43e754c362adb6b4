"""On-policy distillation: directions, estimators and supports against hand-computed values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from rlkit import divergences
from rlkit.methods import opd

P, Q = tensor([[0.9, 0.1]]).log(), tensor([[0.5, 0.5]]).log()


def test_directions_of_the_kl_hand_computed() -> None:
    assert divergences.reverse_kl(P, Q).item() == pytest.approx(0.3681, abs=1e-4)
    assert divergences.forward_kl(P, Q).item() == pytest.approx(0.5108, abs=1e-4)
    assert divergences.entropy(Q).item() == pytest.approx(math.log(2))


def test_jsd_and_its_ends() -> None:
    assert torch.equal(divergences.jsd(P, Q, 1.0), divergences.reverse_kl(P, Q))
    assert torch.equal(divergences.jsd(P, Q, 0.0), divergences.forward_kl(P, Q))
    # m = (.7, .3): half of KL(q || m) and half of KL(p || m)
    by_hand = 0.5 * (0.5 * math.log(0.5 / 0.7) + 0.5 * math.log(0.5 / 0.3))
    by_hand += 0.5 * (0.9 * math.log(0.9 / 0.7) + 0.1 * math.log(0.1 / 0.3))
    assert divergences.jsd(P, Q, 0.5).item() == pytest.approx(by_hand, abs=1e-6)
    # The scale jumps: near 0 it is beta times the forward KL.
    assert divergences.jsd(P, Q, 1e-3).item() == pytest.approx(1e-3 * 0.5108, rel=1e-2)
    with pytest.raises(ValueError, match=r"cannot be 1\.5"):
        divergences.jsd(P, Q, 1.5)


def a_pair(vocabulary: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, vocabulary, generator=generator), torch.randn(1, vocabulary, generator=generator)


@pytest.mark.parametrize("baseline", [False, True], ids=["plain", "baseline"])
def test_the_sampled_gradient_is_the_full_one_on_average(baseline: bool) -> None:
    student, teacher = a_pair()
    leaf = student.clone().requires_grad_()
    (full,) = torch.autograd.grad(divergences.reverse_kl(leaf, teacher).sum(), leaf)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.multinomial(student.softmax(-1), 400_000, replacement=True, generator=generator)[0]
    leaf = student.clone().requires_grad_()
    loss = opd.sampled_reverse_kl(leaf.expand(len(tokens), -1), teacher.expand(len(tokens), -1), tokens, baseline)
    (sampled,) = torch.autograd.grad(loss.mean(), leaf)
    assert (sampled - full).norm() / full.norm() < 0.02
    if not baseline:
        assert loss.mean().item() == pytest.approx(divergences.reverse_kl(student, teacher).item(), rel=0.02)


def test_the_baseline_lowers_the_variance() -> None:
    student, teacher = a_pair()
    teacher = 3 * teacher + 2  # far away: -A has a large mean, which the baseline takes out
    spreads = []
    for baseline in (False, True):
        grads = []
        for token in range(10):
            leaf = student.clone().requires_grad_()
            loss = opd.sampled_reverse_kl(leaf, teacher, tensor([token]), baseline)
            grads.append(torch.autograd.grad(loss.sum(), leaf)[0][0])
        each, p = torch.stack(grads), student.softmax(-1)[0]
        mean = (p[:, None] * each).sum(0)
        spreads.append((p * ((each - mean) ** 2).sum(1)).sum().item())
    assert spreads[1] < spreads[0]


def test_the_advantage_is_detached() -> None:
    """With a differentiable A the gradient would have another term: compare with -A grad log p(y) by hand."""
    student, teacher = a_pair(4)
    leaf = student.clone().requires_grad_()
    (found,) = torch.autograd.grad(opd.sampled_reverse_kl(leaf, teacher, tensor([2])).sum(), leaf)
    a = (teacher.log_softmax(-1) - student.log_softmax(-1))[0, 2]
    by_hand = -a * (torch.eye(4)[2] - student.softmax(-1)[0])
    assert torch.allclose(found[0], by_hand, atol=1e-6)


def test_top_k_of_the_whole_vocabulary_is_the_full_divergence() -> None:
    generator = torch.Generator().manual_seed(2)
    student, teacher = torch.randn(5, 12, generator=generator), torch.randn(5, 12, generator=generator)
    full = divergences.reverse_kl(student, teacher)
    for k in (0, 12, 99):
        for renormalise in (True, False):
            assert torch.allclose(opd.top_k_reverse_kl(student, teacher, k, renormalise), full, atol=1e-5)


def test_top_k_is_renormalised_on_the_teachers_best() -> None:
    student, teacher = tensor([[0.6, 0.1, 0.3]]).log(), tensor([[0.2, 0.5, 0.3]]).log()
    # The teacher's two best are 1 and 2: student (.25, .75), teacher (.625, .375)
    by_hand = 0.25 * math.log(0.25 / 0.625) + 0.75 * math.log(0.75 / 0.375)
    assert opd.top_k_reverse_kl(student, teacher, 2).item() == pytest.approx(by_hand, abs=1e-6)
    raw = 0.1 * math.log(0.1 / 0.5) + 0.3 * math.log(0.3 / 0.3)
    assert opd.top_k_reverse_kl(student, teacher, 2, renormalise=False).item() == pytest.approx(raw, abs=1e-6)
    assert opd.mass_on_top_k(student, teacher, 2).item() == pytest.approx(0.4)


def test_without_renormalising_the_student_escapes_from_the_support() -> None:
    """verl's collapse: the sum over the teacher's best tokens falls below 0 as the student leaves them."""
    _, teacher = a_pair()
    mass = {}
    for renormalise in (True, False):
        logits = teacher.clone().requires_grad_()
        for _ in range(200):
            (grad,) = torch.autograd.grad(opd.top_k_reverse_kl(logits, teacher, 3, renormalise).sum(), logits)
            logits = (logits - 0.5 * grad).detach().requires_grad_()
        mass[renormalise] = opd.mass_on_top_k(logits, teacher, 3).item()
    start = opd.mass_on_top_k(teacher, teacher, 3).item()
    assert mass[True] == pytest.approx(start, abs=1e-3)
    assert mass[False] < start - 0.2


def test_the_control_pushes_down_only_what_was_unlikely() -> None:
    student = tensor([[0.7, 0.2, 0.1]]).log().expand(3, 3).clone().requires_grad_()
    loss = opd.push_down_unlikely(student, tensor([0, 1, 2]), threshold=0.15, advantage=-1.0)
    assert loss.tolist() == pytest.approx([0.0, 0.0, 1.0])
    (grad,) = torch.autograd.grad(loss.sum(), student)
    assert not grad[:2].any()
    assert torch.allclose(grad[2], tensor([-0.7, -0.2, 0.9]), atol=1e-6)

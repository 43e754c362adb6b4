"""GSPO: one ratio a completion, and the clip that the other methods use."""

import pytest
import torch

from rlkit.methods import gspo
from tests.tiny import history


def test_sequence_ratio_of_hand_computed_log_ratios():
    log_ratio = torch.tensor([[0.1, -0.2, 0.4, 9.0]])
    mask = torch.tensor([[1, 1, 1, 0]])
    assert gspo.sequence_ratio(log_ratio, mask).item() == pytest.approx(1.1052, abs=5e-5)
    assert (log_ratio * mask).sum().exp().item() == pytest.approx(1.3499, abs=5e-5)  # the token product


def test_one_token_has_its_own_ratio():
    log_ratio = torch.tensor([[0.3], [-0.7]])
    assert torch.allclose(gspo.sequence_ratio(log_ratio, torch.ones(2, 1)), log_ratio.exp())


def test_a_row_without_tokens_has_ratio_one():
    assert gspo.sequence_ratio(torch.tensor([[5.0, 5.0]]), torch.zeros(1, 2)).item() == 1


def test_clip_of_hand_computed_ratios():
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1])
    A = torch.tensor([1.0, -1, 1, -1, 2])
    found = gspo.clipped(ratio, A, 0.8, 1.2)
    assert found.tolist() == pytest.approx([1.2, -1.5, 0.5, -0.8, 2.2])


def test_gradient_ends_where_the_clip_is_active():
    log_ratio = torch.tensor([0.5, -0.5, 0.5, -0.5, 0.1], requires_grad=True)
    A = torch.tensor([1.0, -1, -1, 1, 1])
    (gradient,) = torch.autograd.grad(gspo.clipped(log_ratio.exp(), A, 0.8, 1.2).sum(), log_ratio)
    assert gradient[:2].tolist() == [0, 0]
    assert gradient[2:].tolist() == pytest.approx((log_ratio.exp() * A)[2:].tolist())


OFF_POLICY = {"steps_per_generation": 4, "per_device_train_batch_size": 8, "max_steps": 6, "loss_type": "grpo"}


def test_it_is_the_one_of_the_library(build):
    """Four updates a generation, so that ratios differ from 1: same gradients as TRL's sequence-level ratio."""
    bounds = {"epsilon": 3e-4, "epsilon_high": 4e-4, "importance_sampling_level": "sequence"}
    norms = []
    for options in ({"stock": True, **bounds}, {"method": "gspo"}):
        trainer = build(**OFF_POLICY, **options)
        trainer.train()
        norms.append([norm for (norm,) in history(trainer, "grad_norm")])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert len(set(norms[0])) == 6

"""Guide: the shaped ratio of hinted rows."""

import pytest
import torch

from rlkit.methods import guide


def test_shaped_ratio_of_the_hand_computed_row():
    rho = torch.tensor([[0.2, 0.5, 0.05, 0.9, 0.3]])
    found = guide.shaped(rho, torch.ones_like(rho) > 0)
    assert found.tolist() == [pytest.approx([0.2128, 0.4032, 0.0633, 0.5488, 0.2885], abs=5e-5)]


def test_gamma_is_that_of_hinted_tokens_and_carries_no_gradient():
    rho = torch.tensor([[0.2, 0.5, 0.05, 0.9, 0.3], [7.0] * 5], requires_grad=True)
    hinted = torch.tensor([[True] * 5, [False] * 5])
    found = guide.shaped(rho, hinted)
    assert found[0, 3].item() == pytest.approx(0.9 / (0.9 + 0.74))
    (gradient,) = torch.autograd.grad(found[0].sum(), rho)
    assert gradient[0].tolist() == pytest.approx((0.74 / (rho[0].detach() + 0.74) ** 2).tolist())
    tiny = torch.full((1, 3), 1e-9)
    assert guide.shaped(tiny, tiny > 0)[0, 0].item() == pytest.approx(1e-5, rel=1e-3)
    assert torch.equal(guide.shaped(tiny, tiny < 0), tiny)

"""VCPO: the effective sample size, the step it allows, truncated weights, the baseline of least variance."""

import math

import pytest
import torch

from rlkit.methods import vcpo


def test_effective_share_of_hand_computed_weights():
    share = vcpo.effective_share(torch.tensor([1.0, 1, 1, 5]).log())
    assert share == pytest.approx(0.5714, abs=5e-5)
    assert vcpo.step_factor(share) == pytest.approx(0.7559, abs=5e-5)
    assert vcpo.step_factor(share, rule="linear") == pytest.approx(0.5714, abs=5e-5)
    assert vcpo.step_factor(share, base=0.5) == 1.0
    assert vcpo.step_factor(share, rule="off") == 1.0
    with pytest.raises(ValueError, match="rule is one of"):
        vcpo.step_factor(share, rule="cube")


def test_equal_weights_keep_the_step_and_their_scale_does_not_matter():
    assert vcpo.effective_share(torch.zeros(7)) == pytest.approx(1.0)
    assert vcpo.effective_share(torch.full((7,), 500.0)) == pytest.approx(1.0)
    assert vcpo.effective_share(torch.tensor([800.0, 0, 0, 0])) == pytest.approx(0.25)
    assert vcpo.effective_share(torch.zeros(0)) == 1.0


def test_weights_are_sequence_products_truncated_at_the_cap():
    log_ratio = torch.tensor([[0.5, 0.5, 9.0], [2.0, 2.0, 2.0]])
    weight, log_w = vcpo.truncated_weight(log_ratio, torch.tensor([[1, 1, 0], [1, 1, 1]]))
    assert weight.tolist() == [[pytest.approx(math.e)], [pytest.approx(8.0)]]
    assert log_w.tolist() == pytest.approx([1.0, 6.0])


def test_least_variance_baseline_of_the_hand_computed_group():
    w, n, R = torch.tensor([1.0, 1, 1, 5]), torch.tensor([1.0, 2, 2, 1]), torch.tensor([1.0, 0, 0, 1])
    assert vcpo.least_variance_baseline(w, n, R).item() == pytest.approx(0.8667, abs=5e-5)


def test_the_callback_scales_one_step_and_sets_back():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.4)
    callback = vcpo.StepSize().callback(trainer=None)
    callback.factor = 0.5
    weight.grad = torch.ones(1)
    callback.on_pre_optimizer_step(None, None, None, optimizer=optimizer, model=None)
    optimizer.step()
    callback.on_optimizer_step(None, None, None, optimizer=optimizer, model=None)
    assert weight.item() == pytest.approx(-0.2)
    assert optimizer.param_groups[0]["lr"] == 0.4


def test_memory_comes_back():
    step_size, back = vcpo.StepSize(), vcpo.StepSize()
    step_size.factor = 0.3
    back.load_state_dict(step_size.state_dict())
    assert back.factor == 0.3

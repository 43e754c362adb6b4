"""LUFFY: f(pi), its weight on the gradient, where the expert row stands."""

import pytest
import torch

from rlkit.methods import luffy
from rlkit.methods.grpo import mean_centered
from tests.tiny import tiny_tokenizer


def test_joint_advantage_of_seven_failures_and_an_expert():
    A = mean_centered(torch.tensor([[0.0] * 7 + [1.0]]))
    assert A.tolist() == [[-0.125] * 7 + [0.875]]


def test_shape_of_hand_computed_probabilities():
    f = luffy.shaped_probability(torch.tensor([0.01, 0.1, 0.5, 0.9]).log())
    assert f.tolist() == pytest.approx([0.0909, 0.5, 0.8333, 0.9], abs=5e-5)


def test_weight_on_the_gradient_is_largest_at_gamma():
    p = torch.tensor([0.001, 0.01, 0.1, 0.5, 0.9, 1.0])
    logps = p.log().requires_grad_()
    (weight,) = torch.autograd.grad(luffy.shaped_probability(logps).sum(), logps)
    assert weight.tolist() == pytest.approx([0.0098, 0.0826, 0.25, 0.1389, 0.09, 0.0826], abs=5e-5)
    x = torch.linspace(0.001, 0.999, 999)
    inside = x * 0.1 / (x + 0.1) ** 2 > x
    assert x[inside].max() == pytest.approx(0.216, abs=1e-3)  # sqrt(.1) - .1


def test_experts_are_the_last_rows_of_ragged_groups():
    groups = [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert luffy.last_of_groups(groups) == [2, 4, 8]
    assert luffy.last_of_groups(groups, 2) == [1, 2, 3, 4, 7, 8]


def test_an_expert_completion_ends_and_fits():
    tokenizer = tiny_tokenizer()
    ids = luffy.expert_ids("1+1=2#2", tokenizer, 20)
    assert tokenizer.decode(ids[:-1]) == "1+1=2#2"
    assert ids[-1] == tokenizer.eos_token_id
    assert luffy.expert_ids("1+1=2#2", tokenizer, 3) == ids[:3]

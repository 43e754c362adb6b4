"""RLSC: a completion's own probability as its weight."""

import pytest
import torch

from rlkit.methods import rlsc


def test_weights_of_hand_computed_log_probs():
    rows = [torch.full((5,), -1.0), torch.full((30,), -1.0)]
    rewards = rlsc.confidence(["a", "b"], logps=rows)
    assert rlsc.sharpened(torch.tensor([rewards])).tolist() == [pytest.approx([0.10674, 0.10000], abs=5e-6)]


def test_expected_confidence_is_the_sum_of_squares():
    p = torch.tensor([0.5, 0.3, 0.2])
    rewards = rlsc.confidence(["a", "b", "c"], logps=list(p.log()[:, None]))
    assert float((p * torch.tensor(rewards)).sum()) == pytest.approx(0.38)


def test_each_term_alone():
    p = torch.tensor([[0.5, float("nan")]])
    assert rlsc.sharpened(p, alpha=0.0)[0, 0] == 0.5
    assert rlsc.sharpened(p, use_confidence=False)[0, 0] == pytest.approx(0.1)
    assert rlsc.sharpened(p)[0, 1].isnan()


def test_very_long_completions_give_zero_and_unknown_log_probs_none():
    assert rlsc.confidence(["a"], logps=[torch.full((2000,), -1.0)]) == [0.0]
    assert rlsc.confidence(["a", "b"], prompts=["x", "y"]) == [None, None]

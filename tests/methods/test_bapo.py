"""BAPO: the share of positive tokens, the search for bounds, the dual clip."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlkit.methods import bapo
from rlkit.methods.gspo import clipped

RATIO = torch.tensor([[1.5, 1.0, 0.7, 1.2, 0.5]])
ADVANTAGES = torch.tensor([[1.0, 1, -1, -1, -1]])
MASK = torch.ones(1, 5)


def test_share_of_hand_computed_tokens():
    shares = [bapo.positive_share(RATIO, ADVANTAGES, MASK, *bounds) for bounds in ((0.6, 1.2), (0.6, 1.5), (0.9, 1.2))]
    assert shares == pytest.approx([2.2 / 4.7, 0.5, 2.2 / 5.2])
    assert shares == pytest.approx([0.4681, 0.5, 0.4231], abs=5e-5)


def test_gradient_share_counts_open_tokens_only():
    # positive: 1.0 is open, 1.5 is clipped at 1.2; negative: .7 and 1.2 are open, .5 is clipped at .6
    assert bapo.gradient_share(RATIO, ADVANTAGES, MASK, 0.6, 1.2) == pytest.approx(1.0 / (1.0 + 0.7 + 1.2))
    assert bapo.gradient_share(RATIO, ADVANTAGES, MASK, 0.9, 1.5) == pytest.approx(2.5 / (2.5 + 1.2))


def test_the_high_bound_moves_first():
    assert bapo.adaptive_bounds(RATIO, ADVANTAGES, MASK) == (0.6, 1.5)
    low, high = bapo.adaptive_bounds(RATIO, ADVANTAGES, MASK, target=0.9)  # out of reach: both at their ends
    assert (low, high) == (0.9, 3.0)


def test_the_release_moves_the_low_bound_first_and_always_to_its_end():
    low, high = bapo.adaptive_bounds(RATIO, ADVANTAGES, MASK, target=0.48, order="low_first")
    assert low == 0.9
    assert high > bapo.adaptive_bounds(RATIO, ADVANTAGES, MASK, target=0.48)[1]
    with pytest.raises(ValueError, match="order is 'high_first' or 'low_first'"):
        bapo.adaptive_bounds(RATIO, ADVANTAGES, MASK, order="both")


def test_bounds_stay_where_there_is_nothing_to_balance():
    for A in (-ADVANTAGES.abs(), ADVANTAGES.abs(), 0 * ADVANTAGES):
        assert bapo.adaptive_bounds(RATIO, A, MASK, target=0.99) == (0.6, 1.2)
    assert bapo.adaptive_bounds(RATIO, ADVANTAGES, 0 * MASK) == (0.6, 1.2)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0.05, 0.95))
def test_the_target_is_met_or_both_bounds_are_at_their_ends(seed, target):
    generator = torch.Generator().manual_seed(seed)
    ratio = (torch.randn(3, 6, generator=generator) * 0.6).exp()
    A = torch.randn(3, 6, generator=generator)
    low, high = bapo.adaptive_bounds(ratio, A, torch.ones(3, 6), target)
    reached = bapo.positive_share(ratio, A, torch.ones(3, 6), low, high) >= target - bapo.ROUNDING
    assert reached or (low, high) == (0.9, 3.0)
    assert 0.6 <= low <= 0.9
    assert 1.2 <= high <= 3.0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_raising_the_low_bound_never_raises_the_share(seed):
    generator = torch.Generator().manual_seed(seed)
    ratio = (torch.randn(3, 6, generator=generator) * 0.6).exp()
    A = torch.randn(3, 6, generator=generator)
    shares = [bapo.positive_share(ratio, A, torch.ones(3, 6), low, 1.2) for low in (0.6, 0.7, 0.8, 0.9)]
    assert shares == sorted(shares, reverse=True)


def test_dual_clip_bounds_negative_tokens_only():
    ratio, A = torch.tensor([[5.0, 5.0, 0.3]]), torch.tensor([[1.0, -1.0, -1.0]])
    assert bapo.dual_clipped(ratio, A, 0.8, 1.2).tolist() == [[pytest.approx(1.2), -3.0, pytest.approx(-0.8)]]
    assert torch.equal(bapo.dual_clipped(ratio, A, 0.8, 1.2, float("inf")), clipped(ratio, A, 0.8, 1.2))

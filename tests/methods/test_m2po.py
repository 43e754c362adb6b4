"""M2PO: the paper's mask, the code's cap, and the threshold that both keep."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlkit.methods import m2po

LOG_RATIO = torch.tensor([[0.5, -0.5, 0.1, -0.05, 0.3, 0.9]])
ADVANTAGES = torch.tensor([[1.0, 1, 1, -1, -1, 1]])
MASK = torch.ones(1, 6)


def test_drifting_tokens_of_the_hand_computed_row():
    among = m2po.drifting(LOG_RATIO, ADVANTAGES, MASK)
    assert among.tolist() == [[True, False, True, True, False, True]]
    assert sorted(LOG_RATIO[among].square().tolist()) == pytest.approx([0.0025, 0.01, 0.25, 0.81])
    assert not m2po.drifting(LOG_RATIO, ADVANTAGES, 0 * MASK).any()


def test_mask_of_hand_computed_moments():
    trusted = m2po.trusted_tokens(LOG_RATIO, ADVANTAGES, MASK)
    assert trusted.tolist() == [[False, True, True, True, True, False]]
    assert m2po.second_moment(LOG_RATIO, trusted & m2po.drifting(LOG_RATIO, ADVANTAGES, MASK)) == pytest.approx(0.00625)
    milder = torch.tensor([[0.05, 0.1, 0.3, 0.9]])  # squares .0025, .01, .09, .81
    trusted = m2po.trusted_tokens(milder, torch.ones(1, 4), torch.ones(1, 4))
    assert trusted.tolist() == [[True, True, True, False]]
    assert m2po.second_moment(milder, trusted) == pytest.approx(0.0342, abs=5e-5)


def test_cap_of_hand_computed_moments():
    squares = torch.tensor([0.0025, 0.01, 0.25, 0.81])
    assert m2po.cap(squares, exact=True) == pytest.approx(0.2716, abs=5e-5)
    assert m2po.cap(squares) == pytest.approx(0.1)
    milder = torch.tensor([0.0025, 0.01, 0.09, 0.81])
    assert m2po.cap(milder, exact=True) ** 2 == pytest.approx(0.07375)
    assert int((milder > 0.07375).sum()) == 2  # the cap stops two tokens, the mask one
    assert m2po.cap(torch.tensor([0.01, 0.05])) == math.inf
    assert m2po.cap(torch.tensor([])) == math.inf
    assert m2po.cap(torch.tensor([0.5, 0.6])) == 0.0


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0.001, 0.2), st.floats(0.05, 2.0))
def test_the_second_moment_is_under_tau_after_masking_and_no_smaller_mask_does_it(seed, tau, scale):
    generator = torch.Generator().manual_seed(seed)
    log_ratio = torch.randn(4, 8, generator=generator) * scale
    A = torch.randn(4, 8, generator=generator)
    mask = (torch.rand(4, 8, generator=generator) < 0.8).float()
    among = m2po.drifting(log_ratio, A, mask)
    trusted = m2po.trusted_tokens(log_ratio, A, mask, tau)
    assert trusted[~among].all()
    assert m2po.second_moment(log_ratio, among & trusted) <= tau + 1e-9
    squares = log_ratio[among].double().square().sort().values
    kept = int((among & trusted).sum())
    if kept < len(squares):
        assert squares[: kept + 1].mean() > tau
        assert squares[:kept].max() <= squares[kept:].min() if kept else True
    for exact in (False, True):
        c = m2po.cap(squares, tau, exact)
        assert len(squares) == 0 or squares.clamp(max=c * c).mean() <= tau + 1e-9


def test_a_large_threshold_masks_nothing():
    assert m2po.trusted_tokens(LOG_RATIO, ADVANTAGES, MASK, math.inf).all()

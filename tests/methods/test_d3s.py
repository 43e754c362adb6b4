"""D3S: subsets of the largest variance, tokens of the largest |A| H, linear schedules."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlkit.methods import d3s

nan = float("nan")


def test_subset_of_the_hand_computed_group():
    A = torch.tensor([2, -0.5, -0.5, -0.5, -0.5, 0, 0, 1, -1])
    chosen = A[d3s.max_variance_subset(A, 4)]
    assert sorted(chosen.tolist()) == [-1, -0.5, 1, 2]
    assert chosen.var(unbiased=False) == pytest.approx(1.421875)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(-5, 5), min_size=2, max_size=8), st.integers(1, 8))
def test_subset_has_the_largest_variance_of_all(values, k):
    x = torch.tensor(values, dtype=torch.float64)
    k = min(k, len(values))
    chosen = d3s.max_variance_subset(x, k)
    best = max(torch.stack(subset).var(unbiased=False).item() for subset in itertools.combinations(x, k))
    assert chosen.sum() == k
    assert x[chosen].var(unbiased=False).item() == pytest.approx(best, abs=1e-9)


def test_subset_never_takes_an_unscorable_row_unless_all_are_wanted():
    x = torch.tensor([nan, 1.0, 0.0, nan, 3.0])
    assert d3s.max_variance_subset(x, 2).tolist() == [False, False, True, False, True]
    assert d3s.max_variance_subset(x, 4).tolist() == [False, True, True, False, True]
    assert d3s.max_variance_subset(x, 5).all()
    assert not d3s.max_variance_subset(torch.tensor([nan, nan]), 1).any()


def test_row_stages_keep_groups_with_spread():
    A = torch.tensor([[1.0, -1, 1, -1], [0, 0, 0, 0], [2, -0.6, -0.7, -0.7]])
    assert d3s.keep_rows(A, 0.5, 1.0).sum(1).tolist() == [2, 2, 2]
    keep = d3s.keep_rows(A, 0.5, 0.5)
    assert keep.sum() == 3
    assert not keep[1].any()
    assert d3s.keep_rows(A, 1.0, 1.0).all()
    assert d3s.keep_rows(torch.full((2, 2), nan), 0.5, 0.5).all()


def test_tokens_are_ranked_by_advantage_times_entropy():
    score = torch.tensor([[1.73 * 0.1, 0.58 * 0.9]])
    assert score.tolist() == [[pytest.approx(0.173), pytest.approx(0.522)]]
    mask = torch.ones(1, 2)
    assert d3s.top_tokens(score, mask, 0.5).tolist() == [[0, 1]]
    assert d3s.top_tokens(score, mask, 1.0).tolist() == [[1, 1]]
    assert d3s.top_tokens(score, mask, 0.0).tolist() == [[0, 1]]  # at least one
    masked = torch.tensor([[1, 0]])
    assert d3s.top_tokens(score, masked, 0.5).tolist() == [[1, 0]]


def test_shares_grow_linearly_from_the_first_to_the_last_step():
    assert [d3s.scheduled((0.1, 1.0), step, 4) for step in range(4)] == pytest.approx([0.1, 0.4, 0.7, 1.0])
    assert d3s.scheduled((0.5, 1.0), 0, 1) == 0.5

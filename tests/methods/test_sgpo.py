"""sGPO: group sizes from a profile, phases from easy to hard."""

import pytest
import torch

from rlkit.methods import sgpo


def test_group_sizes_of_all_counts_of_eight():
    sizes = sgpo.group_sizes(torch.arange(9) / 8)
    assert sizes.tolist() == [sgpo.UNSOLVED, 8, 4, 4, 2, 2, 2, sgpo.TRIVIAL, sgpo.TRIVIAL]


def test_group_sizes_keep_their_bounds():
    assert sgpo.group_sizes(torch.tensor([0.01, 0.6])).tolist() == [8, 2]
    assert sgpo.group_sizes(torch.tensor([0.01, 0.6]), low=4, high=16).tolist() == [16, 4]


def test_phases_cut_the_run_into_equal_parts():
    at = [sgpo.phase_of(step, 9, 3) for step in range(9)]
    assert at == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert [sgpo.phase_of(step, 5, 2) for step in range(5)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert sgpo.phase_of(3, 0, 1) == (0, 3)


def test_a_pool_is_a_bucket_and_the_same_tenth_of_the_unsolved():
    size = torch.tensor([2] * 5 + [8] * 3 + [sgpo.UNSOLVED] * 20 + [sgpo.TRIVIAL] * 4)
    easy, hard = sgpo.pool(size, 2, 0.1, seed=0), sgpo.pool(size, 8, 0.1, seed=0)
    assert easy[:5] == [0, 1, 2, 3, 4]
    assert hard[:3] == [5, 6, 7]
    assert easy[5:] == hard[3:]
    assert len(easy[5:]) == 2
    assert all(8 <= row < 28 for row in easy[5:])
    assert sgpo.pool(size, 2, 0.1, seed=1)[5:] != easy[5:]


def test_an_endless_list_gives_every_row_once_a_pass():
    rows = list(range(10, 17))
    taken = sgpo.take(rows, 0, 21, seed=0)
    assert [sorted(taken[i : i + 7]) for i in (0, 7, 14)] == [rows] * 3
    assert taken[:7] != taken[7:14]
    assert taken[5:12] == sgpo.take(rows, 5, 7, seed=0)  # a step needs no memory of those before


def test_small_groups_are_not_the_ones_that_are_most_often_useful():
    p = torch.tensor([1 / 2, 1 / 8])
    group = torch.tensor([2.0, 8.0])
    spread = 1 - (1 - p) ** group - p**group
    assert spread.tolist() == pytest.approx([0.5, 1 - 0.3436], abs=1e-3)

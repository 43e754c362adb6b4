"""Groups of different sizes: shapes, and TRL's advantages on them."""

from __future__ import annotations

import math

import pytest
import torch

from rlkit.methods.grpo import mean_centered, standardized
from rlkit.trainers.groups import Groups, advantages, spread

UNEVEN = Groups((3, 1, 2))


def test_rows_go_to_their_group_and_back() -> None:
    values = torch.arange(6.0)
    grid = UNEVEN.grid(values, torch.nan)
    assert torch.equal(grid.nan_to_num(-1), torch.tensor([[0.0, 1, 2], [3, -1, -1], [4, 5, -1]]))
    assert torch.equal(grid[UNEVEN.valid(values.device)], values)
    assert UNEVEN.of_rows == [0, 0, 0, 1, 2, 2]
    assert UNEVEN.grid(torch.ones(6, 2), 0.0).shape == (3, 3, 2)
    assert Groups((2, 2)).are_all(2) and not Groups((2, 2)).are_all(4) and not UNEVEN.are_all(3)


def test_a_part_is_whole_groups() -> None:
    assert UNEVEN.part(0, 4) == [0, 0, 0, 1] and UNEVEN.part(4, 2) == [2, 2]
    with pytest.raises(ValueError, match="rows 2 to 3 hold a part of a group"):
        UNEVEN.part(2, 2)


def test_spread_hand_computed() -> None:
    found = spread(torch.tensor([[1.0, 3.0, torch.nan], [2.0, torch.nan, torch.nan]]))
    assert found[0].item() == pytest.approx(math.sqrt(2)) and found[1].isnan().all()


def test_advantages_of_each_group_by_itself() -> None:
    rewards = UNEVEN.grid(torch.tensor([1.0, 2, 6, 5, 4, 4]), torch.nan)
    one = torch.ones(1)
    A, zero = advantages(rewards, rewards[..., None], one, "group", False)
    valid = UNEVEN.valid(rewards.device)
    expected = standardized(rewards)
    assert torch.allclose(A[0], expected[0]) and A[1, 0] == 0 and A[2, :2].tolist() == [0, 0]
    assert zero[2, 0] and not zero[0, 0] and A[~valid].eq(0).all()
    plain, _ = advantages(rewards, rewards[..., None], one, "none", False)
    assert torch.allclose(plain[valid], mean_centered(rewards)[valid])
    batch, _ = advantages(rewards, rewards[..., None], one, "batch", False)
    assert torch.allclose(batch[valid], plain[valid] / (rewards[valid].std() + 1e-4))


def test_an_unscorable_rollout_has_advantage_0() -> None:
    rewards = torch.tensor([[1.0, torch.nan, 3.0]])
    A, _ = advantages(rewards, rewards[..., None], torch.ones(1), "none", False)
    assert A.tolist() == [[-1, 0, 1]]

"""GRPO, Dr. GRPO, RLOO: values worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlkit.methods.grpo import leave_one_out, mean_centered, standardized

TWO_VALUED = torch.tensor([[0.0, 0, 1, 1, 1, 0, 0, 0]])
NAN = float("nan")


def test_grpo_divides_by_the_unbiased_std_hand_computed() -> None:
    """mean .375, std sqrt(.267857) = .517549: -.375 / .517649 and .625 / .517649."""
    assert standardized(TWO_VALUED)[0].tolist() == pytest.approx(
        [-0.7244, -0.7244] + [1.2074] * 3 + [-0.7244] * 3, abs=1e-4
    )


def test_dr_grpo_only_centres_hand_computed() -> None:
    assert mean_centered(TWO_VALUED)[0].tolist() == pytest.approx([-0.375] * 2 + [0.625] * 3 + [-0.375] * 3)


def test_rloo_leaves_its_own_reward_out_hand_computed() -> None:
    """A zero against 3 / 7 of the others, a one against 2 / 7."""
    expected = [-3 / 7] * 2 + [5 / 7] * 3 + [-3 / 7] * 3
    assert leave_one_out(TWO_VALUED)[0].tolist() == pytest.approx(expected)
    assert expected[0] == pytest.approx(-0.4286, abs=1e-4) and expected[2] == pytest.approx(0.7143, abs=1e-4)


def test_rloo_is_dr_grpo_times_g_over_g_minus_one() -> None:
    rewards = torch.rand(50, 6, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(leave_one_out(rewards), mean_centered(rewards) * 6 / 5, atol=1e-6)


def test_groups_do_not_share_their_std() -> None:
    """Two groups of different spread: [0, 1] has std .7071, [0, 10] has 7.071; both give +-.7071."""
    found = standardized(torch.tensor([[0.0, 1], [0, 10]]))
    assert found.flatten().tolist() == pytest.approx([-0.7071, 0.7071] * 2, abs=2e-4)


@pytest.mark.parametrize("advantage", [standardized, mean_centered, leave_one_out])
def test_an_unscorable_rollout_is_as_if_it_were_not_there(advantage: Callable[..., Any]) -> None:
    whole = advantage(torch.tensor([[1.0, 2.0, 4.0]]))
    with_nan = advantage(torch.tensor([[1.0, NAN, 2.0, 4.0]]))
    assert torch.equal(with_nan[:, [0, 2, 3]], whole) and with_nan[0, 1].isnan()
    assert torch.nan_to_num(advantage(torch.tensor([[NAN, 3.0, NAN]]))).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("advantage", [standardized, mean_centered, leave_one_out])
def test_equal_rewards_give_exactly_zero(advantage: Callable[..., Any]) -> None:
    assert advantage(torch.full((2, 4), 0.5)).eq(0).all()

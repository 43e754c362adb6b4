"""MC-GRPO: values worked out by hand, ties, unscorable rollouts, and the sign-flip study."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlkit.methods.mc_grpo import flip_signs, flip_study, median_pivot, sign_flips

NAN = float("nan")


def _kept(rewards: Tensor, **options: Any) -> Any:
    advantages, keep = median_pivot(torch.tensor([rewards]), **options)
    assert keep.sum() == len(rewards) - 1
    return advantages[keep].tolist()


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0, 0.5, 3], [-0.998, 4.990]),
        ([0, 1, 1.5, 2, 3], [-2.994, -0.998, 0.998, 2.994]),
        ([0, 0, 1.0], [0, 1000]),  # two values: MAD is exactly 0
        ([0, 0, 2, 2, 2.0], [-2000, -2000, 0, 0]),
    ],
)
def test_advantages_over_mad_hand_computed(rewards: Tensor, expected: Any) -> None:
    assert _kept(rewards, scale="mad") == pytest.approx(expected, abs=1e-3)


def test_other_scales_hand_computed() -> None:
    assert _kept([0, 0.5, 3]) == [-0.5, 2.5]
    assert _kept([0, 0, 1.0], scale="mad_floor", floor=0.5) == [0, 2]
    assert _kept([0, 1, 1.5, 2, 3], scale="mad_floor", floor=0.25) == [-3, -1, 1, 3]
    # MAD 0: std of [0, 0, 1] is sqrt(1 / 3) = .57735
    assert _kept([0, 0, 1.0], scale="std", eps=0.0) == pytest.approx([0, 1.73205])
    assert _kept([0, 0.5, 3], scale="std") == _kept([0, 0.5, 3], scale="mad")
    # the released GSM8K trainer: times 5 / 4, four of five advantages are not 0
    assert _kept([0, 1, 1.5, 2, 3], rescale=True) == pytest.approx([-1.875, -0.625, 0.625, 1.875])


def test_the_pivot_is_the_first_rollout_at_the_median() -> None:
    _, keep = median_pivot(torch.tensor([[1.0, 1, 0, 0, 0], [2, 2, 2, 2, 2], [3, 1, 2, 5, 4]]))
    assert (~keep).int().argmax(1).tolist() == [2, 0, 0]
    assert keep.sum(1).tolist() == [4, 4, 4]


def test_unscorable_rollouts_stay_out_of_median_and_pivot() -> None:
    advantages, keep = median_pivot(torch.tensor([[NAN, 5, 1, NAN, 3], [NAN, NAN, NAN, NAN, NAN], [NAN, 1, 2, 3, 4]]))
    assert torch.nan_to_num(advantages[0]).tolist() == [0, 2, -2, 0, 0]
    assert keep[0].tolist() == [True, True, True, True, False]
    assert keep[1].tolist() == [False, True, True, True, True] and advantages[1].isnan().all()
    assert torch.nan_to_num(advantages[2]).tolist() == [
        0,
        -1,
        0,
        1,
        2,
    ]  # an even rest: the lower of the two in the middle


def test_even_groups_and_unknown_scales_are_errors() -> None:
    with pytest.raises(ValueError, match=r"group of 8 .* num_generations=9 to train 8 rows a prompt, or 7 to train 6"):
        median_pivot(torch.zeros(1, 8))
    with pytest.raises(ValueError, match="scale is one of none, mad, mad_floor, std, not 'sd'"):
        median_pivot(torch.zeros(1, 3), scale="sd")


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=9).filter(lambda r: len(r) % 2 == 1))
def test_two_values_never_flip_a_sign_and_their_mad_is_zero(values: Any) -> None:
    rewards = torch.tensor([values])
    for mu in (0.01, 0.5, 0.99):
        centered = rewards - rewards.mean(1, keepdim=True)
        assert not sign_flips(centered, rewards, torch.tensor([[mu]]))[0].any()
    advantages, keep = median_pivot(rewards, scale="mad")
    sizes = advantages[keep].abs()
    assert ((sizes == 0) | ((sizes - 1000).abs() < 1e-3)).all()


@given(st.lists(st.floats(-100, 100, width=32), min_size=5, max_size=5))
def test_one_row_a_group_leaves_and_it_has_no_advantage(values: Any) -> None:
    for scale in ("none", "mad", "mad_floor", "std"):
        advantages, keep = median_pivot(torch.tensor([values, values[::-1]]), scale=scale)
        assert keep.sum(1).tolist() == [4, 4]
        assert advantages[~keep].tolist() == [0, 0] and advantages.isfinite().all()


def test_sign_flips_hand_computed() -> None:
    flips, zeros = sign_flips(torch.tensor([[1.0, -1, 0, 0]]), torch.tensor([[2.0, 2, 2, 1]]), torch.tensor([[1.0]]))
    assert flips.tolist() == [[False, True, False, False]]
    assert zeros.tolist() == [[False, False, True, False]]  # the last reward is mu itself: there is no side


def test_flipped_signs_are_a_function_of_seed_and_step() -> None:
    advantages = torch.ones(200, 8)
    flipped = flip_signs(advantages, 0.25, seed=1, step=2)
    assert (flipped < 0).float().mean().item() == pytest.approx(0.25, abs=0.05)
    assert torch.equal(flipped, flip_signs(advantages, 0.25, 1, 2))
    assert not torch.equal(flipped, flip_signs(advantages, 0.25, 1, 3))
    assert not torch.equal(flipped, flip_signs(advantages, 0.25, 2, 2))
    assert torch.equal(flip_signs(advantages, 0, 1, 2), advantages) and torch.equal(
        flip_signs(advantages, 1, 1, 2), -advantages
    )
    with pytest.raises(ValueError, match="is a probability, not 2"):
        flip_signs(advantages, 2, 0, 0)


def test_flip_study_finds_what_is_known() -> None:
    """Two values: the mean never flips. Few large outliers: the mean flips often, the median less at G = 2."""
    generator = torch.Generator().manual_seed(0)
    two = (torch.rand(8, 128, generator=generator) < 0.4).float()
    table = flip_study(two, repeats=50).groupby(["baseline", "G"])["flip_rate"].mean()
    assert (table[["mean", "leave_one_out", "mean_plus_one"]] == 0).all()

    mix = torch.rand(32, 128, generator=generator)
    outliers = mix + 2 * (torch.rand(32, 128, generator=generator) < 0.1)
    frame = flip_study(outliers, groups=(2, 4), repeats=100, seed=3)
    assert list(frame.columns) == ["prompt", "G", "baseline", "flip_rate", "zero_share"]
    assert len(frame) == 32 * 2 * 4 and frame["flip_rate"].between(0, 1).all()
    rates = frame.groupby(["G", "baseline"])["flip_rate"].mean()
    assert rates[2]["median"] < rates[2]["mean"] and rates[4]["mean"] < rates[2]["mean"]
    assert rates[2]["mean"] == pytest.approx(rates[2]["leave_one_out"])  # the same signs
    assert frame.equals(flip_study(outliers, groups=(2, 4), repeats=100, seed=3))
    with pytest.raises(ValueError, match="group of 9 cannot be drawn from 8"):
        flip_study(outliers[:, :8], groups=(8,))


def test_flip_study_agrees_with_counting_every_group() -> None:
    """K = 3 rollouts with rewards 0, 1, 5 (mu 2), G = 2: groups of two are (0,1), (0,5), (1,5), equally often."""
    frame = flip_study(torch.tensor([[0.0, 1.0, 5.0]]), groups=(2,), repeats=4000).set_index("baseline")
    # mean of two: in (0,1) the 1 gets a positive sign although it is under mu; the rest is right: 1 of 6
    assert frame.loc["mean", "flip_rate"] == pytest.approx(1 / 6, abs=0.02)
    # the median of three is 1, the pivot leaves, 0 and 5 are right; the mean of all three is mu itself
    assert frame.loc["median", "flip_rate"] == frame.loc["mean_plus_one", "flip_rate"] == 0
    assert frame.loc["median", "zero_share"] == 0

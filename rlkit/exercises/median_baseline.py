"""Exercises of the notebook `median_baseline`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rlkit.exercises.exercise import Case, Exercise
from rlkit.methods.grpo import mean_centered
from rlkit.methods.mc_grpo import median_pivot, sign_flips

NAN = float("nan")


def advantage(rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Median-centered advantages (N, G + 1) and the rollouts that stay, from rewards (N, G + 1)."""
    return median_pivot(rewards)


def _groups(*rows: list[float]) -> tuple[Tensor]:
    return (torch.tensor(rows),)


def _graded(prompts: int, size: int, seed: int) -> Tensor:
    """Graded rewards of a few levels, so that rollouts tie."""
    return torch.randint(0, 7, (prompts, size), generator=torch.Generator().manual_seed(seed)) / 4


def _groups_of_rewards() -> Iterator[Case]:
    yield Case(_groups([0.0, 1.0, 1.5, 2.0, 3.0]), note="the group of the notebook")
    yield Case(_groups([3.0, 0.0, 2.0, 1.5, 1.0]), note="the same rewards in another order")
    yield Case(_groups([0.0, 1.0, 1.5, 2.0, 30.0]), note="an outlier")
    yield Case(_groups([0.0, 0.0, 1.0], [1.0, 0.0, 1.0]), note="two prompts; two rollouts tie at the median")
    yield Case(_groups([1.0, 1.0, 1.0]), note="all rewards are equal")
    yield Case(_groups([-2.0, -1.0, -5.0]), note="negative rewards")
    yield Case(_groups([2.0]), note="a group of one")
    yield Case(_groups([0.0, NAN, 2.0, 1.0, 4.0]), note="one rollout could not be scored, its reward is NaN")
    for size in (3, 5, 9):
        yield Case((_graded(4, size, size),), note=f"4 prompts with {size} rollouts each")


def _keep_all_but(pivots: Tensor) -> Tensor:
    return torch.ones(pivots.shape, dtype=torch.bool) & ~pivots


def _last_at_median(r: Tensor) -> tuple[Tensor, Tensor]:
    A, _ = median_pivot(r)
    last = r.size(1) - 1 - (A == 0).flip(1).int().argmax(1)
    return A, _keep_all_but(torch.nn.functional.one_hot(last, r.size(1)).bool())


def _plain_median(r: Tensor) -> tuple[Tensor, Tensor]:
    m = r.median(1, keepdim=True).values
    pivot = (r == m).int().argmax(1)
    return r - m, _keep_all_but(torch.nn.functional.one_hot(pivot, r.size(1)).bool())


ADVANTAGE = Exercise(
    what="Median-centered advantages of groups of G + 1 rewards, and which rollouts stay in the update.",
    reference=advantage,
    cases=_groups_of_rewards,
    returns=("advantages", "keep"),
    hint="A = r - median of its own row; keep is True but for the first rollout of the row whose reward is the median.",
    mistakes={
        "This is what the mean as the baseline gives.": lambda r: (mean_centered(r), median_pivot(r)[1]),
        "These advantages are divided by MAD + 0.001: here the scale is 1.": lambda r: median_pivot(r, "mad"),
        "These advantages are divided by the standard deviation: here the scale is 1.": lambda r: (
            median_pivot(r)[0] / r.std(1, keepdim=True),
            median_pivot(r)[1],
        ),
        "A reward that is NaN gives an advantage that is NaN: 0 would say that the rollout is average.": lambda r: (
            median_pivot(r)[0].nan_to_num(0.0),
            median_pivot(r)[1],
        ),
        "One rollout per prompt has to leave: the one whose reward is the median.": lambda r: (
            median_pivot(r)[0],
            torch.ones_like(r, dtype=torch.bool),
        ),
        "Only one rollout leaves: where several have the median reward, the first.": lambda r: (
            median_pivot(r)[0],
            median_pivot(r)[0] != 0,
        ),
        "Where several rollouts have the median reward, the first of them leaves, not the last.": _last_at_median,
        "keep is the wrong way round: True means that a rollout stays.": lambda r: (
            median_pivot(r)[0],
            ~median_pivot(r)[1],
        ),
        "This is the median of all prompts together: each row needs its own.": lambda r: (
            r - r.nanmedian(),
            median_pivot(r)[1],
        ),
        "torch.median gives NaN as soon as one reward is NaN; torch.nanmedian leaves it out.": _plain_median,
    },
)


def flip_rate(rewards: Tensor, mu: Tensor) -> float:
    """Share of rollouts whose mean-centered advantage has the wrong sign; rewards (N, G), mu (N, 1) true means."""
    flips, _ = sign_flips(mean_centered(rewards), rewards, mu)
    return float(flips.float().mean())


def _groups_with_truth() -> Iterator[Case]:
    yield Case((torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[1.5]])), note="1 is right at the mean, below mu")
    yield Case((torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0]])), note="both are better than the prompt's worth")
    yield Case((torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0]])), note="equal rewards: advantages of 0 are no flips")
    yield Case((torch.tensor([[0.0, 2.0], [1.0, 2.0]]), torch.tensor([[1.0], [0.0]])), note="two prompts")
    yield Case((torch.tensor([[0.0, 1.0, 5.0]]), torch.tensor([[0.5]])), note="an outlier")
    yield Case(
        (torch.tensor([[1.0, 1.0, 1.0, 0.0]]), torch.tensor([[1.0]])), note="a rollout as good as mu has no side"
    )
    for size in (2, 4, 8):
        rewards = _graded(16, size, size)
        yield Case((rewards, _graded(16, 1, 40 + size) / 2 + 0.3), note=f"16 prompts, G = {size}")


FLIP_RATE = Exercise(
    what="How often the mean of a group puts a rollout on the wrong side of the prompt's true mean.",
    reference=flip_rate,
    cases=_groups_with_truth,
    hint="A rollout is flipped when sign(r - group mean) and sign(r - mu) are opposite: their product is -1.",
    mistakes={
        "This counts advantages of 0 as flips: they say nothing, so they cannot be wrong.": lambda r, mu: float(
            (mean_centered(r).sign() != (r - mu).sign()).float().mean()
        ),
        "This is the share among rollouts with an advantage that is not 0: take it of all.": lambda r, mu: float(
            sign_flips(mean_centered(r), r, mu)[0].sum() / (mean_centered(r) != 0).sum()
        ),
        "This is how many are flipped: divide by the number of rollouts.": lambda r, mu: float(
            sign_flips(mean_centered(r), r, mu)[0].sum()
        ),
        "This is one share for each prompt: average over all rollouts.": lambda r, mu: (
            sign_flips(mean_centered(r), r, mu)[0].float().mean(1)
        ),
        "This is the share of right signs.": lambda r, mu: 1 - flip_rate(r, mu),
        "Take the mean of each group, not of all rewards together.": lambda r, mu: float(
            sign_flips(r - r.mean(), r, mu)[0].float().mean()
        ),
        "The baseline of this exercise is the mean, not the median.": lambda r, mu: float(
            sign_flips(r - r.median(1, keepdim=True).values, r, mu)[0].float().mean()
        ),
    },
)


def repaired(rewards: Tensor, G: int) -> Tensor:
    """Median-centered advantages (N, G + 1) of a flat batch: G rollouts of each prompt, then one more of each."""
    N = len(rewards) // (G + 1)
    return median_pivot(torch.cat([rewards[: N * G].view(N, G), rewards[N * G :, None]], 1))[0]


def _flat_batches() -> Iterator[Case]:
    yield Case((torch.tensor([0.0, 1.0, 2.0]), 2), note="one prompt: nothing can be mixed")
    yield Case((torch.tensor([0.0, 0.0, 9.0, 9.0, 0.0, 9.0]), 2), note="an easy and a hard prompt")
    yield Case((torch.tensor([0.0, 1.0, 5.0, 6.0, 2.0, 7.0]), 2), note="two prompts, G = 2")
    for prompts, G in ((3, 2), (4, 4), (5, 8)):
        yield Case((_graded(prompts, G + 1, G).flatten(), G), note=f"{prompts} prompts, G = {G}")


def _beginning_with_extra(rewards: Tensor, G: int) -> Tensor:
    N = len(rewards) // (G + 1)
    return median_pivot(torch.cat([rewards[N * G :, None], rewards[: N * G].view(N, G)], 1))[0]


def _without_extra(rewards: Tensor, G: int) -> Tensor:
    groups = rewards[: len(rewards) // (G + 1) * G].view(-1, G)
    return groups - groups.median(1, keepdim=True).values


REPAIRED = Exercise(
    what="Find the bug: groups that mix prompts, because the extra rollouts stand at the end of the batch.",
    reference=repaired,
    cases=_flat_batches,
    hint="The first N * G rewards are N groups of G; the last N are one more rollout of each prompt, in order.",
    mistakes={
        "This is what the broken function gives: some rows hold rollouts of two prompts.": lambda rewards, G: (
            median_pivot(rewards.view(-1, G + 1))[0]
        ),
        "Every row has the right rollouts, but the extra one comes last in it, not first.": _beginning_with_extra,
        "The extra rollouts are left out: the group of a prompt has G + 1.": _without_extra,
    },
)


EXERCISES = {"advantage": ADVANTAGE, "flip_rate": FLIP_RATE, "repaired": REPAIRED}

"""Exercises of the notebook `tour`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rlkit.exercises.exercise import Case, Exercise
from rlkit.methods.grpo import EPSILON, mean_centered, standardized


def advantage(rewards: Tensor) -> Tensor:
    """GRPO's advantages (N, G) from rewards (N, G)."""
    return standardized(rewards)


def _drawn(prompts: int, size: int) -> Tensor:
    """Right-or-wrong rewards, one row a prompt."""
    return torch.randint(0, 2, (prompts, size), generator=torch.Generator().manual_seed(size)).float()


def _groups() -> Iterator[Case]:
    yield Case((torch.tensor([[1.0, 0.0, 1.0, 0.0]]),), note="the group of the notebook")
    yield Case((torch.tensor([[0.0, 0.0, 0.0, 1.0]]),), note="one right answer in four")
    yield Case((torch.tensor([[0.25, 1.5, 0.75]]),), note="rewards of several levels")
    yield Case((torch.tensor([[1.0, 1.0], [0.0, 0.0]]),), note="all right, all wrong: nothing to learn")
    yield Case((torch.tensor([[1.0, 0.0], [5.0, 4.0]]),), note="an easy prompt beside a hard one")
    for prompts, size in ((4, 4), (8, 8), (3, 16)):
        yield Case((_drawn(prompts, size),), note=f"{prompts} prompts with {size} rollouts each")


ADVANTAGE = Exercise(
    what="GRPO's advantages of groups of G rewards.",
    reference=advantage,
    cases=_groups,
    hint="Each row minus its own mean, divided by its own standard deviation (torch's `std`) + 1e-4.",
    mistakes={
        "These are not divided by the standard deviation yet: that is Dr. GRPO.": mean_centered,
        "This divides by G below the root; GRPO, and torch's `std`, divide by G - 1.": lambda r: (
            mean_centered(r) / (r.std(1, keepdim=True, correction=0) + EPSILON)
        ),
        "This is the mean of all prompts together: each row needs its own.": lambda r: (
            (r - r.mean()) / (r.std(1, keepdim=True) + EPSILON)
        ),
        "This is the standard deviation of all prompts together: each row needs its own.": lambda r: (
            mean_centered(r) / (r.std() + EPSILON)
        ),
        "Mean and standard deviation of all prompts together: each row needs its own.": lambda r: (
            (r - r.mean()) / (r.std() + EPSILON)
        ),
        "Without the 1e-4, groups of equal rewards give 0 / 0.": lambda r: mean_centered(r) / r.std(1, keepdim=True),
        "The sign is the wrong way round: a right answer is better than its group.": lambda r: -standardized(r),
    },
)


def silent(p: float, G: int) -> float:
    """Chance that G independent answers, each right with probability p, are all right or all wrong."""
    return p**G + (1 - p) ** G


SILENT = Exercise(
    what="How likely it is that a group of G teaches nothing.",
    reference=silent,
    cases=[
        Case((0.25, 2), note="both right: 1/16; both wrong: 9/16"),
        Case((0.5, 2), note="two coins: the same side half the time"),
        Case((0.5, 1), note="a group of one has nothing to compare with"),
        Case((0.0, 8), note="never right"),
        Case((1.0, 8), note="always right"),
        Case((0.25, 8), note="the base of the notebook"),
        Case((0.9, 4), note="an easy prompt"),
        Case((0.9, 64), note="a large group"),
    ],
    hint="All right: p ** G. All wrong: (1 - p) ** G. The two exclude each other, so their chances add up.",
    mistakes={
        "This counts the groups that are all right only.": lambda p, G: p**G,
        "This counts the groups that are all wrong only.": lambda p, G: (1 - p) ** G,
        "This is the chance that the group does teach something.": lambda p, G: 1 - p**G - (1 - p) ** G,
    },
)


def repaired(rewards: Tensor) -> Tensor:
    """Rewards (N, G) minus the mean of their own row."""
    return mean_centered(rewards)


def _shapes() -> Iterator[Case]:
    yield Case((torch.tensor([[1.0, 0.0, 1.0, 0.0]]),), note="one prompt")
    yield Case((torch.tensor([[1.0, 1.0], [0.0, 4.0]]),), note="as many prompts as rollouts")
    yield Case((_drawn(2, 4),), note="2 prompts with 4 rollouts each")
    yield Case((_drawn(8, 8),), note="8 prompts with 8 rollouts each")
    yield Case((_drawn(5, 3),), note="5 prompts with 3 rollouts each")


REPAIRED = Exercise(
    what="Rewards minus the mean of their group, for any number of prompts and rollouts.",
    reference=repaired,
    cases=_shapes,
    hint="rewards.mean(1) has the shape (N,). Beside (N, G) it is read as one row; keepdim=True makes it (N, 1).",
    mistakes={
        "That is still the mean of another prompt: (N,) beside (N, N) is taken for a row.": lambda r: r - r.mean(1),
        "This compares the first answers of all prompts with each other, then the second ones.": lambda r: (
            r - r.mean(0)
        ),
        "This is the mean of all prompts together.": lambda r: r - r.mean(),
    },
)

EXERCISES = {"advantage": ADVANTAGE, "silent": SILENT, "repaired": REPAIRED}

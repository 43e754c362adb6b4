"""Exercises of the notebook `one_shot_rlvr`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rlkit.exercises.exercise import Case, Exercise
from rlkit.methods.grpo import mean_centered, standardized
from rlkit.methods.one_shot import lim_score, variance_score

NAN = float("nan")


def score(history: Tensor) -> Tensor:
    """Historical variance (n,) of accuracies (n examples, E epochs), NaN where an example was not drawn."""
    return variance_score(history)


def _random_history(examples: int, epochs: int, seed: int) -> Tensor:
    """Shares of 8 right rollouts."""
    return torch.randint(0, 9, (examples, epochs), generator=torch.Generator().manual_seed(seed)) / 8


def _histories() -> Iterator[Case]:
    yield Case((torch.tensor([[0.0, 0.5, 1.0], [0.1, 0.2, 0.3]]),), note="both move evenly, the first further")
    yield Case((torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.5, 0.25]]),), note="always right and never right do not move")
    yield Case((torch.tensor([[0.9, 0.9, 1.0], [0.1, 0.3, 0.2]]),), note="the most accurate is not the one")
    yield Case((torch.tensor([[0.5, NAN, 0.5], [NAN, 0.0, 0.75]]),), note="gaps: not drawn in that epoch")
    yield Case((torch.tensor([[0.0, 1.0, NAN, NAN], [1.0, 0.0, 0.0, 0.25]]),), note="one was drawn twice only")
    for size in (8, 64):
        yield Case((_random_history(size, 10, size),), note=f"{size} examples, 10 epochs")


SCORE = Exercise(
    what="The historical variance of each example: how much its accuracy moved over the epochs.",
    reference=score,
    cases=_histories,
    hint="For each row: the mean square distance from the row's own mean, over the epochs that drew the example.",
    mistakes={
        "This is the mean accuracy: an example that is always right never moves.": lambda h: h.nanmean(1),
        "This is the standard deviation: the score is its square.": lambda h: variance_score(h).sqrt(),
        "This divides by E - 1: the score divides by the number of epochs.": lambda h: (
            variance_score(h) * _drawn(h) / (_drawn(h) - 1)
        ),
        "This is the variance over examples, of each epoch: take it over the epochs of each example.": lambda h: (
            variance_score(h.T)
        ),
        "NaN means not drawn, not always wrong: leave it out instead of counting 0.": lambda h: h.nan_to_num().var(
            1, unbiased=False
        ),
        "One NaN makes a variance NaN: leave out the epochs that did not draw an example.": lambda h: h.var(
            1, unbiased=False
        ),
        "These are LIM scores.": lim_score,
        "The mean to subtract is the row's own, not that of all examples.": lambda h: ((h - h.nanmean()) ** 2).nanmean(
            1
        ),
    },
)


def _drawn(history: Tensor) -> Tensor:
    """Epochs that drew each example, (n,)."""
    return (~history.isnan()).sum(1)


def own_groups(rewards: Tensor, G: int) -> Tensor:
    """GRPO's advantages (copies, G) of a flat batch of copies of one example, each copy a group of its own."""
    return standardized(rewards.view(-1, G))


def _right_or_wrong(copies: int, G: int, seed: int) -> Tensor:
    return (torch.rand(copies * G, generator=torch.Generator().manual_seed(seed)) < 0.5).float()


def _batches() -> Iterator[Case]:
    yield Case((torch.tensor([0.0, 1.0]), 2), note="one copy: nothing can be mixed")
    yield Case((torch.tensor([1.0, 1.0, 0.0, 1.0]), 2), note="the first copy was solved twice")
    yield Case((torch.tensor([1.0, 1.0, 1.0, 1.0]), 2), note="train accuracy 100 %: nothing is left to learn")
    yield Case((torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]), 4), note="the second copy was never solved")
    for copies, G in ((4, 4), (8, 8)):
        yield Case((_right_or_wrong(copies, G, G), G), note=f"{copies} copies, {G} rollouts each")


OWN_GROUPS = Exercise(
    what="Find the bug: all copies have one name, so their rollouts fall into one huge group.",
    reference=own_groups,
    cases=_batches,
    hint="Cut the rewards into groups of G first; mean and standard deviation belong to a group, not to the batch.",
    mistakes={
        "This is what the broken function gives: one baseline for the rollouts of all copies.": lambda rewards, G: (
            standardized(rewards.view(1, -1)).view(-1, G)
        ),
        "The baseline is right; divide by the group's standard deviation + 0.0001 too.": lambda rewards, G: (
            mean_centered(rewards.view(-1, G))
        ),
        "The batch is cut the wrong way: the G rollouts of a copy stand side by side.": lambda rewards, G: standardized(
            rewards.view(G, -1).T
        ),
        "The mean is each group's, the standard deviation must be too.": lambda rewards, G: (
            mean_centered(rewards.view(-1, G)) / (rewards.std() + 1e-4)
        ),
        "This is the deviation with n in the denominator; GRPO's has G - 1.": lambda rewards, G: (
            mean_centered(rewards.view(-1, G)) / (rewards.view(-1, G).std(1, unbiased=False, keepdim=True) + 1e-4)
        ),
    },
)


def share(validation: Tensor, test: Tensor, full_validation: Tensor, full_test: Tensor) -> float:
    """Share of the full set's gain; each (E,) accuracies at the evaluations of a run, the first before training."""
    return _gain(validation, test) / _gain(full_validation, full_test)


def _gain(validation: Tensor, test: Tensor) -> float:
    """Test accuracy at the checkpoint that is best on the validation split, minus the accuracy before training."""
    return float(test[int(validation.argmax())] - test[0])


def _curves(seed: int) -> tuple[Tensor, ...]:
    """Two runs of 6 evaluations: one that rises and falls, one that rises."""
    noise = torch.rand(4, 6, generator=torch.Generator().manual_seed(seed)) / 20
    one, full = torch.tensor([0.3, 0.4, 0.5, 0.45, 0.4, 0.35]), torch.tensor([0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    return one + noise[0], one + noise[1], full + noise[2], full + noise[3]


def _runs() -> Iterator[Case]:
    rising = torch.tensor([0.2, 0.4, 0.6])
    yield Case((rising, rising, rising, rising), note="the same run twice")
    yield Case((torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.2, 0.4, 0.3]), rising, rising), note="it overfits")
    yield Case((torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.2, 0.3, 0.4]), rising, rising), note="the splits differ")
    yield Case((torch.tensor([0.2, 0.1, 0.1]), torch.tensor([0.2, 0.6, 0.1]), rising, rising), note="never better")
    for seed in (1, 2, 3):
        yield Case(_curves(seed), note="six evaluations")


SHARE = Exercise(
    what="The share of the full set's gain that a run reaches, at checkpoints chosen without a look at the test split.",
    reference=share,
    cases=_runs,
    hint="For each run: test[validation.argmax()] - test[0]. Then one gain over the other.",
    mistakes={
        "The checkpoint is chosen on the test split, as in the paper: that is a leak.": lambda v, t, fv, ft: float(
            (t.max() - t[0]) / (ft.max() - ft[0])
        ),
        "These are the last checkpoints, not those chosen on the validation split.": lambda v, t, fv, ft: float(
            (t[-1] - t[0]) / (ft[-1] - ft[0])
        ),
        "This is the ratio of accuracies: subtract what the model could do before training.": lambda v, t, fv, ft: (
            float(t[v.argmax()] / ft[fv.argmax()])
        ),
        "These are gains on the validation split: they were chosen to be large.": lambda v, t, fv, ft: float(
            (v.max() - v[0]) / (fv.max() - fv[0])
        ),
        "Both runs are read at the checkpoint of one: each has its own.": lambda v, t, fv, ft: float(
            (t[v.argmax()] - t[0]) / (ft[v.argmax()] - ft[0])
        ),
        "This is the share upside down.": lambda v, t, fv, ft: (
            1 / share(v, t, fv, ft) if share(v, t, fv, ft) else float("inf")
        ),
    },
)


EXERCISES = {"score": SCORE, "own_groups": OWN_GROUPS, "share": SHARE}

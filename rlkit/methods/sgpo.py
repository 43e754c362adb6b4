"""sGPO: the size of a group follows from how often the starting policy solves the prompt.

Paper: arXiv 2606.08854 (abstract; the rules from a detailed re-implementation by others that cites its sections).
Profile every prompt with 8 rollouts of the starting policy; with p the share of right ones:

    p > .75        trivial: never trained
    0 < p <= .75   learnable: G = 1 / p as a power of two between 2 and 8, "smallest group that still shows a success"
    p = 0          unsolved: a random tenth of them joins every phase

Training goes through phases from easy to hard: all prompts of G = 2, then 4, then 8, with the tenth at the phase's G.

What is different here, and why. 1/p is rounded up to a power of two (at p = 3/8 the sources leave 2 or 4 open). The
paper trains each phase until it converges, by a test that could not be found: here the run's steps are cut into equal
parts, one a phase that has prompts. The number of rollouts of a step stays the same, so a phase with small groups
sees more prompts. The profile is charged to `generated_tokens`. `group` fixes one size for all phases, in the same
order: the control that asks whether the sizes matter at all. Small groups are not the ones that are most often
useful: at p = 1/2 a group of 2 has no spread half of the time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method

COLUMN = "success"
"""Data-set column with p."""
TRIVIAL, UNSOLVED = -1, 0
PROFILE = {"low": 2, "high": 8, "trivial": 0.75}


def group_sizes(p: Tensor, low: int = 2, high: int = 8, trivial: float = 0.75) -> Tensor:
    """Rollouts a prompt: 1 / p rounded up to a power of two; 0 where p = 0; -1 where p is above `trivial`.

    Args:
        p: (n,) share of right rollouts in the profile.
        low: smallest group, a power of two.
        high: largest group, a power of two.
        trivial: largest share that is still trained.

    Returns:
        (n,) int64.

    """
    exponent = torch.ceil(-torch.log2(p.double().clamp(min=1e-9)) - 1e-9)
    size = (2**exponent).clamp(low, high).long()
    size[p == 0] = UNSOLVED
    size[p > trivial] = TRIVIAL
    return size


def phase_of(step: int, max_steps: int, phases: int) -> tuple[int, int]:
    """The phase that `step` is in, when the run is cut into equal parts, and how many steps of it are done."""
    phase = min(phases - 1, step * phases // max(1, max_steps))
    first = -(-phase * max_steps // phases)
    return phase, step - first


def pool(size: Tensor, group: int, share: float, seed: int) -> list[int]:
    """Rows of the phase with this group size: bucket and `share` (at least one) of the unsolved, the same each time."""
    unsolved = (size == UNSOLVED).nonzero().flatten()
    order = torch.randperm(len(unsolved), generator=torch.Generator().manual_seed(seed))
    some = unsolved[order[: max(1, round(share * len(unsolved)))]]
    return torch.cat([(size == group).nonzero().flatten(), some]).tolist()


def take(rows: list[int], start: int, count: int, seed: int) -> list[int]:
    """`count` entries from position `start` of an endless list: `rows` shuffled anew for each pass."""
    first, last = start // len(rows), (start + count - 1) // len(rows)
    generators = [torch.Generator().manual_seed(1_000_003 * seed + turn) for turn in range(first, last + 1)]
    passes = [torch.tensor(rows)[torch.randperm(len(rows), generator=g)] for g in generators]
    return torch.cat(passes)[start - first * len(rows) :][:count].tolist()


def measure_success(dataset: Any, trainer: Any) -> Any:
    """Roll out the starting policy and add the column `success`, the share of right rollouts of each prompt.

    Raises:
        ValueError: every prompt is trivial, so there is nothing to train.

    """
    o = trainer.method.options
    if o["allocation"] == "off":
        return dataset
    rewards = [got["reward"] for got in trainer.collect([row for row in dataset for _ in range(o["samples"])])]
    p = (torch.tensor(rewards).view(-1, o["samples"]) >= o["right_at"]).float().mean(1)
    if (group_sizes(p, **{name: o[name] for name in PROFILE}) == TRIVIAL).all():
        raise ValueError(
            f"On every prompt more than {o['trivial']} of the rollouts are right already: nothing is left."
        )
    return dataset.add_column(COLUMN, p.tolist())


def plan(ctx: Context, dataset: Any, rows: list[Any]) -> list[tuple[Any, int]]:
    """The `sampler` hook: prompts of the present phase in groups of its size, as many rollouts as ever."""
    o, rollouts = ctx.options, len(rows) * ctx.group_size
    if o["allocation"] == "off":
        return [(row, ctx.group_size) for row in rows]
    size = group_sizes(torch.tensor(dataset[COLUMN]), **{name: o[name] for name in PROFILE})
    sizes = sorted(set(size[size > 0].tolist())) or [o["high"]]
    phase, done = phase_of(ctx.step, ctx.max_steps, len(sizes))
    group = o["group"] or sizes[phase]
    if rollouts % group:
        raise ValueError(f"sgpo: {rollouts} rollouts a step do not divide into groups of {group}.")
    ctx.log("sgpo/group", float(group))
    members, count = pool(size, sizes[phase], o["unsolved"], ctx.seed), rollouts // group
    return [(dataset[i], group) for i in take(members, done * count, count, 31 * ctx.seed + phase)]


SGPO = Method(
    "sgpo",
    summary="group size 1/p from a profile of the starting policy, easy prompts first",
    paper="2606.08854",
    parent="grpo",
    options={**PROFILE, "allocation": "profile", "samples": 8, "unsolved": 0.1, "group": None, "right_at": 1.0},
    reduces_to={"allocation": "off"},
    data=measure_success,
    sampler=plan,
)

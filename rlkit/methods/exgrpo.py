"""ExGRPO: one old right rollout in the groups of prompts that are solved about half of the time.

Paper: arXiv 2510.02245 (full text and released code read). Prompts with a right rollout make a pool; half of a batch is
drawn from it, by k, how many of the last G rollouts were right:

    p(k) ~ exp(-(k - G/2)^2 / (2 sigma^2)), sigma = 1;  uniform inside a bucket;  prompts with k = G retire for good
    the row: the stored right one of lowest entropy under the present policy;  1 old and G - 1 fresh, A joint, no std
    fresh tokens rho A, no clip;  old tokens f(w) A, w = pi / pi_old, f(w) = w / (w + beta), beta = .1
    replay starts once 35 % of the rollouts of a step are right

What is different here, and why. k is counted over the fresh rollouts of a group, scaled to G. A pool that is smaller
than half of the batch is used whole. The old row takes the place of a rollout (`group_replay.py`). The code's entropy
bonus (.001) is left out. `clip` puts PPO's clip back on fresh tokens; `rule="plain"` is its clipped ratio on old
tokens, the control for f; `draw="random"` and `sigma=1e6` are those for the two rules of the draw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.buffer import Bag
from rlkit.methods.group_replay import OPTIONS, GroupReplay, key_of, seams
from rlkit.methods.gspo import clipped, loss_time
from rlkit.methods.replay import checked, seeded


def bucket_weight(right: float, group: int, sigma: float = 1.0) -> float:
    """ExGRPO's weight of prompts with `right` of `group` rollouts right: exp(-(k - G/2)^2 / (2 sigma^2))."""
    return math.exp(-((right - group / 2) ** 2) / (2 * sigma**2))


def shaped_ratio(ratio: Tensor, beta: float = 0.1) -> Tensor:
    """ExGRPO's f(w) = w / (w + beta) of a ratio to the policy that drew the row. Any shape."""
    return ratio / (ratio + beta)


class Pool(GroupReplay):
    """Prompts with a right row, by how many of their last rollouts were right."""

    def __init__(self) -> None:
        super().__init__()
        self.retired: set[str] = set()
        self.buckets: dict[int, Bag] = {}
        self.solved = 0.0
        """Share of right fresh rollouts in the last step."""
        self._bucket: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._asked: set[str] = set()

    def admits(self, key: str) -> bool:
        """Only prompts that this step drew from the pool."""
        return key in self._asked

    def sampler(self, ctx: Context, dataset: Any, rows: Sequence[Any]) -> list[tuple[Any, int]]:
        """ExGRPO: half of the prompts come from the pool, those solved half of the time first."""
        o, count = checked(ctx.options), 0
        if o["mix"] and self.solved >= o["start_at"]:
            count = int(o["prompts"] * len(rows))
        if not self._places:
            ids = dataset["id"] if "id" in dataset.column_names else dataset["prompt"]
            self._places = {str(key): place for place, key in enumerate(ids)}
        keys = self._pool(count, ctx.group_size, o["sigma"], seeded(ctx.seed, ctx.step))
        fresh = [row for row in rows if key_of(row) not in keys][: len(rows) - len(keys)]
        others = [row for row in rows if key_of(row) in keys]  # asked for twice: stay, so that no prompt is lost
        chosen = [dataset[self._places[key]] for key in keys] + fresh + others
        self._asked = set(keys)
        ctx.log("replay/pool", len(self._bucket))
        ctx.log("replay/retired", len(self.retired))
        return [(row, ctx.group_size) for row in chosen[: len(rows)]]

    def _pool(self, count: int, group: int, sigma: float, rng: random.Random) -> list[str]:
        """`count` prompts: a bucket by its weight, then a prompt of it, none twice; all where there are fewer."""
        if count >= len(self._bucket):
            return sorted(self._bucket)
        taken: dict[str, None] = {}
        while len(taken) < count:
            open_ = [k for k, bag in sorted(self.buckets.items()) if not set(bag.items[:count]) <= taken.keys()]
            (k,) = rng.choices(open_, [bucket_weight(k, group, sigma) for k in open_])
            taken.update(dict.fromkeys(self.buckets[k].draw(1, rng)))
        return list(taken)

    def learn(self, ctx: Context, found: Mapping[str, Sequence[bool]]) -> None:
        """Put the prompts of the step into their buckets; solved ones retire."""
        self.solved = sum(map(sum, found.values())) / max(1, sum(map(len, found.values())))
        for key, right in found.items():
            self._sort_in(key, sum(right) / len(right), ctx.group_size, ctx.options["retire"])

    def _sort_in(self, key: str, share: float, group: int, retire: bool) -> None:
        """Retire a prompt that is solved, and put the others into the bucket of how many rollouts were right."""
        if retire and share == 1:
            self.retired.add(key)
        if key in self.retired:
            self.buffer.shrink_prompt(key, 0)
        if key in self._bucket:
            self.buckets[self._bucket.pop(key)].discard(key)
        if self.buffer.of(key):
            self._bucket[key] = round(share * group)
            self.buckets.setdefault(self._bucket[key], Bag()).add(key)

    def state_dict(self) -> dict[str, Any]:
        """Rows and pool."""
        buckets = {k: bag.items for k, bag in self.buckets.items()}
        return {**super().state_dict(), "retired": sorted(self.retired), "buckets": buckets, "solved": self.solved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        super().load_state_dict(state)
        self.retired, self.solved = set(state["retired"]), state["solved"]
        self.buckets = {k: Bag(items) for k, items in state["buckets"].items()}
        self._bucket = {key: k for k, bag in self.buckets.items() for key in bag.items}


def objective(ctx: Context) -> Tensor:
    """ExGRPO's `surrogate`: f(w) A on replayed tokens, rho A on fresh ones, clipped only with `clip`."""
    log_ratio, A, _ = loss_time(ctx)
    ratio, clip = log_ratio.exp(), ctx.options["clip"]
    own = ratio * A if clip is None else clipped(ratio, A, 1 - clip, 1 + clip)
    old = torch.arange(A.size(1), device=A.device) < ctx.extras["replayed"][:, None]
    if ctx.options["rule"] not in ("shaped", "plain"):
        raise ValueError(f"rule is 'shaped' or 'plain', not {ctx.options['rule']!r}.")
    shaped = ctx.options["rule"] == "shaped"
    replayed = shaped_ratio(ratio, ctx.options["beta"]) * A if shaped else clipped(ratio, A, 0.8, 1.2)
    return torch.where(old, replayed, own)


_pool = Pool()

EXGRPO = Method(
    "exgrpo",
    summary="one right old rollout of low entropy in the groups of half-solved prompts",
    paper="2510.02245",
    config={"loss_type": "dr_grpo", "scale_rewards": "none"},
    options={
        **OPTIONS,
        "store": "correct",
        "draw": "lowest_entropy",
        "mix": 0.125,
        "retire": True,
        "prompts": 0.5,
        "sigma": 1.0,
        "start_at": 0.35,
        "beta": 0.1,
        "rule": "shaped",
        "clip": None,
    },
    **{**seams(_pool), "parent": "dr_grpo", "reduces_to": {"mix": 0.0, "clip": 0.2}},
    sampler=_pool.sampler,
    surrogate=objective,
)

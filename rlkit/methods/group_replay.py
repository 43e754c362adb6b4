"""Replay inside a group: a prompt's own old rollouts take places of its group before the rewards.

Papers: RePO arXiv 2506.09340 (released code read), SOUP 2601.21476 (abstracts read); `rlep.py` and `exgrpo.py` build on
this file. A group of G holds G - m fresh rollouts and m old ones; the advantage is worked out over all of them, or over
each part.

    repo    half of the group, those whose rewards vary most, from prompts with a full queue of 16; fresh and old apart
    soup    the first tokens of 2 old rows, up to half of each; the present policy goes on; the ratio of a token is to
            the policy that drew that token

    store         all | correct | nonzero (centred reward)       evict   `buffer`, `per_prompt`, `max_age`
    draw          random | recent | highest | max_variance | lowest_entropy
    mix           share of the group, at least one row           ratio_source   stored | recomputed
    advantage     joint | split (standardised apart)

What is different here, and why. Old rows take the place of rollouts, which are then not drawn: a group keeps its size,
fewer tokens are drawn, and an empty buffer is plain GRPO. RePO adds rows instead, and a loss of old rows to that of
fresh ones; here both are one mean. With right-or-wrong rewards its released rule, `draw="highest"`, takes only right
rows once there are enough: their advantages among themselves are 0. In `soup` the rule for prefixes is ours, since the
text that we could read gives none. Draws are a function of seed, step and prompt; what is stored is the same on all
processes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.buffer import ReplayBuffer, Row
from rlkit.methods.grpo import standardized
from rlkit.methods.replay import checked, kept_by, seeded


def max_variance(rewards: Sequence[float], count: int) -> list[int]:
    """The `count` places whose rewards vary most; ties go to the larger sum (RePO).

    Such a set is always some of the smallest and some of the largest, so only `count` + 1 sets are compared.
    """
    order = sorted(range(len(rewards)), key=lambda i: rewards[i])
    count = min(count, len(order))
    sets = [order[:low] + order[len(order) - (count - low) :] for low in range(count + 1)]

    def worth(places: list[int]) -> tuple[float, float]:
        values = [float(rewards[i]) for i in places]
        mean = sum(values) / max(1, count)
        return round(sum((v - mean) ** 2 for v in values), 9), sum(values)

    return max(sets, key=worth)


def split_advantages(rewards: Tensor, replayed: Tensor) -> Tensor:
    """GRPO's advantages of fresh and of replayed rows, each group apart. (N, G), (N, G) bool -> (N, G); NaN gives 0."""
    parts = [standardized(rewards.masked_fill(part, torch.nan)) for part in (replayed, ~replayed)]
    return torch.where(replayed, parts[1], parts[0]).nan_to_num(0.0, 0.0, 0.0)


def pick(rule: str, stored: Sequence[Row], count: int, rng: random.Random, entropies: Sequence[float]) -> list[Row]:
    """`count` of a prompt's stored rows (oldest first) by the rule `draw`; `entropies` for "lowest_entropy" only."""
    if rule == "random":
        return rng.sample(list(stored), count)
    if rule == "recent":
        return list(stored)[len(stored) - count :]
    if rule == "max_variance":
        return [stored[i] for i in max_variance([row["reward"] for row in stored], count)]
    worth = entropies if rule == "lowest_entropy" else [-row["reward"] for row in stored]
    return [stored[i] for i in sorted(range(len(stored)), key=lambda i: worth[i])[:count]]


def key_of(columns: Mapping[str, Any]) -> str:
    """What tells prompts apart: the column `id`, else the prompt itself."""
    return str(columns["prompt"] if columns.get("id") is None else columns["id"])


def useful_share(
    rewards: Tensor, rule: str, stored: int = 16, count: int = 8, repeats: int = 50, seed: int = 0
) -> Tensor:
    """How often a row that RePO's `rule` takes has an advantage among the taken ones, from rewards alone.

    Args:
        rewards: (P, K) of K rollouts of each of P prompts.
        rule: of the draw; "recent" stands for none, since rewards have no order here.
        stored: length of the queue, filled without putting back.
        count: rows taken.
        repeats: queues drawn a prompt.
        seed: of the draws.

    Returns:
        (P,) share of taken rows whose advantage, standardised among them, is not 0.

    """
    rng, shares = seeded(seed, rule), []
    for of_prompt in rewards.tolist():
        found = 0
        for _ in range(repeats):
            queue = [{"reward": reward} for reward in rng.sample(of_prompt, stored)]
            taken = torch.tensor([[row["reward"] for row in pick(rule, queue, count, rng, ())]])
            found += int((standardized(taken) != 0).sum())
        shares.append(found / (repeats * count))
    return torch.tensor(shares)


class GroupReplay:
    """A prompt's own old rollouts, on the `rollout` seam: they join its group before the rewards."""

    def __init__(self) -> None:
        self.buffer = ReplayBuffer()

    def replays(self, ctx: Context) -> bool:
        """Whether old rows are used in this step."""
        return bool(ctx.options["mix"])

    def stores(self, ctx: Context) -> bool:
        """Whether fresh rows are stored in this step."""
        return bool(ctx.options["mix"])

    def admits(self, key: str) -> bool:
        """Whether rows of a prompt may be used in this step."""
        return True

    def learn(self, ctx: Context, found: Mapping[str, Sequence[bool]]) -> None:
        """Called after storing, with the prompts of the step and which of their fresh rollouts were right."""

    def rollout(self, ctx: Context, rows: Sequence[Any], trainer: Any) -> list[dict[str, Any]]:
        """Rollouts; in groups whose prompt has enough stored rows, the last ones are replayed."""
        o = checked(ctx.options)
        if o["max_age"] is not None:
            self.buffer.forget(ctx.step - o["max_age"])
        old = self._chosen(ctx, rows, trainer) if self.replays(ctx) else {}
        drawn = [i for i in range(len(rows)) if i not in old]
        got = {
            i: {**row, "age": 0, "replayed": 0}
            for i, row in zip(drawn, trainer.generate_rows([rows[i] for i in drawn]), strict=True)
        }
        got |= self._continued(ctx, rows, old, trainer) if o["prefix"] else self._whole(ctx, rows, old, trainer)
        self.buffer.use(list(old.values()), ctx.step)
        ctx.log("replay/share", len(old) / len(rows))
        ctx.log("replay/age", sum(ctx.step - r["born"] for r in old.values()) / len(old) if old else math.nan)
        return [got[i] for i in range(len(rows))]

    def _chosen(self, ctx: Context, rows: Sequence[Any], trainer: Any) -> dict[int, Row]:
        """Place in the batch -> stored row, at the end of each group."""
        groups: dict[int, list[int]] = {}
        for i, group in enumerate(ctx.groups):
            groups.setdefault(group, []).append(i)
        wanted: dict[int, list[Row]] = {}
        for group, places in groups.items():
            key = key_of(rows[places[0]])
            if self.admits(key):
                stored = self.buffer.of(key)
                wanted[group] = stored if len(stored) >= ctx.options["at_least"] else []
        entropies = self._entropies(ctx, rows, groups, wanted, trainer)
        out: dict[int, Row] = {}
        for group, stored in wanted.items():
            places = groups[group]
            count = min(math.ceil(ctx.options["mix"] * len(places) - 1e-9), len(places) - 1, len(stored))
            rng = seeded(ctx.seed, ctx.step, key_of(rows[places[0]]))
            picked = pick(ctx.options["draw"], stored, count, rng, entropies.get(group, ()))
            out.update(zip(places[len(places) - count :], picked, strict=True))
        return out

    def _entropies(
        self, ctx: Context, rows: Sequence[Any], groups: Any, wanted: dict[int, list[Row]], trainer: Any
    ) -> dict[int, list[float]]:
        """Mean entropy of each stored row under the present policy, where the draw asks for it: one more forward."""
        flat = [(group, row) for group, stored in wanted.items() for row in stored]
        if ctx.options["draw"] != "lowest_entropy" or not flat:
            return {}
        prompts = trainer.tokenize([rows[groups[group][0]]["prompt"] for group, _ in flat])
        entropies = trainer.score(prompts, [row["completion_ids"].tolist() for _, row in flat])[1]
        out: dict[int, list[float]] = {}
        for (group, row), values in zip(flat, entropies, strict=True):
            out.setdefault(group, []).append(float(values.sum()) / len(row["completion_ids"]))
        return out

    def _whole(self, ctx: Context, rows: Sequence[Any], old: dict[int, Row], trainer: Any) -> dict[int, dict[str, Any]]:
        """Stored rows as they are; where the ratio is not to be the stored one, they are scored like fresh rows."""
        prompts = trainer.tokenize([rows[i]["prompt"] for i in old]) if old else []
        out: dict[int, dict[str, Any]] = {}
        for (i, row), prompt in zip(old.items(), prompts, strict=True):
            ids = row["completion_ids"].tolist()
            logps = row["logps"].tolist() if ctx.options["ratio_source"] == "stored" else None
            parts = {"prompt_ids": prompt, "completion_ids": ids, "old_logps": logps}
            out[i] = {**parts, "age": ctx.step - row["born"], "replayed": len(ids)}
        return out

    def _continued(
        self, ctx: Context, rows: Sequence[Any], old: dict[int, Row], trainer: Any
    ) -> dict[int, dict[str, Any]]:
        """SOUP: the first tokens of stored rows, gone on with by the present policy."""
        if not old:
            return {}
        heads: list[list[int]] = []
        for i, row in old.items():
            rng = seeded(ctx.seed, ctx.step, i, "prefix")
            length = rng.randint(0, int(ctx.options["prefix"] * len(row["completion_ids"])))
            heads.append(row["completion_ids"][:length].tolist())
        got = trainer.generate_rows([rows[i] for i in old], begin=heads)
        out: dict[int, dict[str, Any]] = {}
        for (i, row), head, new in zip(old.items(), heads, got, strict=True):
            logps = row["logps"][: len(head)].tolist() if ctx.options["ratio_source"] == "stored" else None
            out[i] = {**new, "old_logps": logps, "age": ctx.step - row["born"], "replayed": len(head)}
        return out

    def advantage(self, ctx: Context) -> Tensor | None:
        """Store what the policy has drawn; advantages are the trainer's own (joint), or fresh and replayed apart."""
        assert ctx.rewards is not None and ctx.valid is not None
        o = ctx.options
        if self.stores(ctx):
            self._store(ctx)
        if o["advantage"] == "joint" or not o["mix"]:
            return None
        replayed = torch.zeros_like(ctx.valid)
        replayed[ctx.valid] = torch.tensor([n > 0 for n in ctx.columns["replayed"]], device=ctx.valid.device)
        return split_advantages(ctx.rewards, replayed)

    def _store(self, ctx: Context) -> None:
        assert ctx.rewards is not None and ctx.valid is not None and ctx.logps is not None
        o, found = ctx.options, dict[str, list[bool]]()
        rewards = ctx.rewards[ctx.valid].tolist()
        centred = (ctx.rewards - ctx.rewards.nanmean(1, keepdim=True))[ctx.valid].tolist()
        for i, ids in enumerate(ctx.completion_ids):
            if ctx.columns["replayed"][i] >= len(ids):  # it is in the buffer already
                continue
            key = key_of({name: ctx.columns[name][i] for name in ("id", "prompt") if name in ctx.columns})
            right = rewards[i] >= o["right_at"]
            found.setdefault(key, []).append(right)
            row = {"prompt": key, "born": ctx.step, "right": right, "reward": rewards[i]}
            if not math.isnan(rewards[i]) and kept_by(o["store"], row, centred[i]):
                logps = ctx.logps[i, : len(ids)].cpu().clone()
                self.buffer.add({**row, "completion_ids": torch.tensor(ids, dtype=torch.int), "logps": logps})
                self.buffer.shrink_prompt(key, o["per_prompt"])
        self.buffer.shrink(o["buffer"])
        self.learn(ctx, found)
        ctx.log("replay/stored", len(self.buffer))

    def state_dict(self) -> dict[str, Any]:
        """The buffer."""
        return {"buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.buffer.load_state_dict(state["buffer"])


OPTIONS: dict[str, Any] = {
    "buffer": 16_384,
    "per_prompt": 16,
    "max_age": None,
    "store": "all",
    "draw": "random",
    "mix": 0.25,
    "at_least": 1,
    "ratio_source": "stored",
    "advantage": "joint",
    "right_at": 1.0,
    "prefix": None,
}


def seams(memory: GroupReplay) -> dict[str, Any]:
    """What replay inside a group has in common."""
    hooks: dict[str, Any] = {"rollout": memory.rollout, "advantage": memory.advantage, "state": (memory,)}
    return {**hooks, "needs": frozenset({"logps"}), "reduces_to": {"mix": 0.0}, "parent": "grpo"}


_repo, _soup = GroupReplay(), GroupReplay()

REPO = Method(
    "repo",
    summary="half of a group are old rollouts whose rewards vary most",
    paper="2506.09340",
    options={**OPTIONS, "draw": "max_variance", "mix": 0.5, "at_least": 16, "advantage": "split"},
    **seams(_repo),
)

SOUP = Method(
    "soup",
    summary="two rollouts of a group begin with tokens of old ones",
    paper="2601.21476",
    options={**OPTIONS, "per_prompt": 8, "prefix": 0.5},
    **seams(_soup),
)

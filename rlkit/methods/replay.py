"""Replay: train rollouts more than once, each with the advantage and the log-probs that it was drawn with.

Paper: arXiv 2604.08706 (full text read). The last N rollouts wait in a first-in first-out buffer with what they had
when they were drawn; a batch is drawn uniformly from them, and they stay. With R rollouts drawn and B rows trained a
step,

    rho_t = pi(y_t) / pi_old(y_t),  pi_old the policy that drew the row; fresh rows have rho = 1
    J = min(rho A, clip(rho, 1 - epsilon, 1 + epsilon) A),   A frozen;   cost of a step: B + mu R

Positive bias: (1 - delta) N places for the freshest rows, delta N for the freshest right ones that are older. The
buffer's switches:

    store         all | correct | nonzero (advantage): which rows go in
    evict         `buffer` rows, first in, first out; `delta` of them for right ones; `max_age` in optimiser steps
    draw          uniform without putting back
    mix           share of the batch that is replayed; B = `repeat` * R
    ratio_source  stored | recomputed | one: the last two pretend that the present policy drew the old rows
    advantage     frozen; `group_replay.py` has the ones that are worked out again

What is different here, and why. The paper's workers and trainers run side by side; here they take turns. With
`mix=None` every fresh row is trained once and the rest of the batch is replayed; `mix=1.0` is the paper's batch, all of
it from the buffer. A row is never replayed in the step it was born, nor twice in a batch; while there are too few old
rows, batches are smaller, and without any the step is GRPO's. N = 256 and B = 2 R are ours. Rows that a method has
taken out (`keep`) are not stored. Draws are a function of seed and step: a resumed run draws the same without a saved
generator. `watch` scores old rows under the present policy, to log how far it has moved: one more forward, nothing else
changes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch

from rlkit.method import Method, near
from rlkit.methods.buffer import ReplayBuffer, Row, cut, join
from rlkit.methods.vcpo import effective_share

CHOICES = {
    "store": ("all", "correct", "nonzero"),
    "ratio_source": ("stored", "recomputed", "one"),
    "draw": ("random", "recent", "highest", "max_variance", "lowest_entropy"),
    "advantage": ("joint", "split"),
}


def checked(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options. Raises ValueError for a switch that has no such value, or a share that is none."""
    for name in CHOICES.keys() & options.keys():
        if options[name] not in CHOICES[name]:
            told = near(str(options[name]), CHOICES[name])
            frozen = " Rows with frozen advantages are replay_uniform's." if options[name] == "frozen" else ""
            raise ValueError(f"Replay: there is no {name}={options[name]!r}. {told}{frozen}")
    for name in {"mix", "delta", "prefix"} & options.keys():
        if options[name] is not None and not 0 <= options[name] <= 1:
            raise ValueError(f"Replay: {name} is a share from 0 to 1, not {options[name]}.")
    return options


def seeded(*parts: Any) -> random.Random:
    """A generator whose numbers are a function of what is named."""
    return random.Random("/".join(map(str, parts)))


def kept_by(store: str, row: Row, advantage: float) -> bool:
    """Whether the rule `store` keeps a row."""
    return {"all": True, "correct": row["right"], "nonzero": advantage != 0}[store]


class Replay:
    """Rows with frozen advantages, on the `batch` seam."""

    def __init__(self) -> None:
        self.buffer = ReplayBuffer()

    def batch(self, trainer: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch to train, drawn from fresh rows and those of earlier steps; then the fresh ones are stored."""
        o, step = checked(trainer.method.options), trainer.state.global_step
        if "entropies" in batch:
            mask = batch["completion_mask"]
            trainer.log_value("replay/policy_entropy", float((batch["entropies"] * mask).sum() / mask.sum()))
        if not o["buffer"]:
            trainer.log_value("replay/rows", len(batch["counted"]))
            return batch
        if o["max_age"] is not None:
            self.buffer.forget(step - o["max_age"])
        fresh = self._fresh(batch, step, trainer, o["right_at"])
        out, old = self._mixed(trainer, batch, fresh)
        if o["ratio_source"] == "one":
            out.pop("old_per_token_logps", None)
        self.buffer.use(old, step)
        for row in fresh:
            stays = bool(row["counted"]) and len(row["completion_ids"]) > 0
            if stays and kept_by(o["store"], row, float(row["advantages"].abs().max())):
                self.buffer.add(row)
        self.buffer.shrink(o["buffer"], o["delta"])
        trainer.log_value("replay/rows", len(out["counted"]))
        trainer.log_value("replay/stored", len(self.buffer))
        return out

    def _fresh(self, batch: dict[str, Any], step: int, trainer: Any, right_at: float) -> list[Row]:
        rows = cut(batch)
        for row in rows:
            prompt = " ".join(map(str, row["prompt_ids"].tolist()))
            row.update(prompt=prompt, born=step, right=float(row["reward"]) >= right_at, uses=0)
        return rows

    def _mixed(self, trainer: Any, batch: dict[str, Any], fresh: list[Row]) -> tuple[dict[str, Any], list[Row]]:
        """The batch to train, and which of its rows are old. Rows that do not count go along, as they are."""
        o, step = trainer.method.options, trainer.state.global_step
        rng = seeded(trainer.args.seed, step, trainer.accelerator.process_index)
        counted = [row for row in fresh if row["counted"]]
        silent = [row for row in fresh if not row["counted"]]
        wanted = round(o["repeat"] * len(counted))
        share = wanted - len(counted) if o["mix"] is None else round(o["mix"] * wanted)
        old = self.buffer.draw(max(0, share), rng)
        new = min(len(counted), wanted - len(old))
        rest = (len(old) + new + len(silent)) % trainer.args.steps_per_generation
        old, new = (old[: len(old) - rest], new) if len(old) >= rest else (old, new - rest)
        if not old and new == len(counted):  # nothing to replay: the batch as it came
            return {**batch, "age": torch.zeros_like(batch["counted"], dtype=torch.long)}, []
        chosen = counted if new == len(counted) else [counted[i] for i in sorted(rng.sample(range(len(counted)), new))]
        out = join([*chosen, *old, *silent], batch, trainer.processing_class.pad_token_id)
        ages = [0] * new + [step - row["born"] for row in old] + [0] * len(silent)
        out["age"] = torch.tensor(ages, device=out["completion_ids"].device)
        self._number_groups(out, old, new)
        self._look(trainer, out, old, new)
        return out, old

    def _number_groups(self, out: dict[str, Any], old: list[Row], new: int) -> None:
        """Rows of another step are no part of a fresh group: those of one prompt and step get a number of their own."""
        if "group" in out:
            places: dict[Any, int] = {}
            last = int(out["group"].max())
            numbers = [places.setdefault((row["prompt"], row["born"]), len(places)) for row in old]
            out["group"][new : new + len(old)] = torch.tensor(numbers, dtype=out["group"].dtype) + last + 1

    def _look(self, trainer: Any, out: dict[str, Any], old: list[Row], new: int) -> None:
        """Log age and use of the old rows and, if asked for, how far the policy has moved from the one that drew."""
        o, n = trainer.method.options, len(old)
        trainer.log_value("replay/share", n / max(1, n + new))
        if not old:
            return
        trainer.log_value("replay/age", float(out["age"][new : new + n].float().mean()))
        trainer.log_value("replay/uses", sum(row["uses"] + 1 for row in old) / n)
        if not o["watch"] and o["ratio_source"] != "recomputed":
            return
        now = trainer.score(*([row[k].tolist() for row in old] for k in ("prompt_ids", "completion_ids")))[0]
        stored = out["old_per_token_logps"][new : new + n, : now.size(1)]
        drift = now - stored
        trainer.log_value("replay/effective_share", effective_share(drift.sum(1)))
        trainer.log_value("replay/drift", float(drift.abs().sum() / sum(len(row["completion_ids"]) for row in old)))
        if o["ratio_source"] == "recomputed":
            stored.copy_(now)

    def state_dict(self) -> dict[str, Any]:
        """The buffer."""
        return self.buffer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.buffer.load_state_dict(state)


OPTIONS: dict[str, Any] = {
    "buffer": 256,
    "repeat": 2.0,
    "mix": None,
    "store": "all",
    "delta": 0.0,
    "max_age": None,
    "ratio_source": "stored",
    "right_at": 1.0,
    "watch": False,
}

_uniform, _positive = Replay(), Replay()

REPLAY_UNIFORM = Method(
    "replay_uniform",
    summary="old rollouts join the batch, drawn uniformly from the last ones",
    paper="2604.08706",
    parent="grpo",
    options=OPTIONS,
    reduces_to={"buffer": 0},
    batch=_uniform.batch,
    state=(_uniform,),
    needs=frozenset({"logps"}),
)

REPLAY_POSITIVE = Method(
    "replay_positive",
    summary="the same, with a fifth of the buffer for right rollouts that are older",
    paper="2604.08706",
    parent="grpo",
    options={**OPTIONS, "delta": 0.2},
    reduces_to={"buffer": 0},
    batch=_positive.batch,
    state=(_positive,),
    needs=frozenset({"logps"}),
)

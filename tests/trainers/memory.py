"""A method with memory in every seam, for tests of resuming."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlkit.method import Context, Method


class Everywhere:
    """Each hook counts its calls and lets what it gives depend on what it has seen."""

    __name__ = "remembered"

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.rates: dict[int, float] = {}
        self.entropy = torch.zeros(())
        self.rows: list[dict[str, torch.Tensor]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls, "rates": self.rates, "entropy": self.entropy, "rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls, self.rates = state["calls"], state["rates"]
        self.entropy, self.rows = state["entropy"], state["rows"]

    def called(self, name: str) -> int:
        self.calls[name] = self.calls.get(name, 0) + 1
        return self.calls[name]

    def sampler(self, ctx: Context, dataset: Any, rows: Any) -> Any:
        """The prompts with the lowest reward so far; two sizes of groups, whole ones on each of two ranks."""
        self.called("sampler")
        order = sorted(range(len(dataset)), key=lambda i: (self.rates.get(i, -1.0), i))
        half = [6, 2, 4, 4]
        return [(dataset[i], size) for i, size in zip(order, half * 2, strict=False)]

    def rollout(self, ctx: Context, rows: Any, trainer: Any) -> Any:
        """The first row of the batch is a completion that depends on how often we were here."""
        got = [{**row, "visits": 0} for row in trainer.generate_rows(rows)]
        visits = self.called("rollout")
        got[0] |= {"completion_ids": [3 + visits % 10, 2], "visits": visits}
        return got

    def __call__(self, completions: Sequence[Any], learn: bool, **columns: Any) -> list[float]:
        visits = self.called("reward") if learn else 0
        return [sum(c.isdigit() for c in text) / 4 + len(text) / 64 * visits for text in completions]

    def advantage(self, ctx: Context) -> Any:
        for i, reward in zip(ctx.columns["id"], ctx.rewards[ctx.valid].tolist(), strict=True):
            self.rates[i] = 0.5 * self.rates.get(i, 0.0) + 0.5 * reward
        self.called("advantage")
        return ctx.rewards - ctx.rewards.nanmean() * (1 + self.calls["advantage"] / 10)

    def batch(self, trainer: Any, batch: Any) -> Any:
        """Two rows are trained in place of two fresh ones: those of the last step with their own log-probs."""
        stored, count = self.rows, self.called("batch")
        keys = [key for key, value in batch.items() if value.ndim]
        self.rows = [{key: batch[key][i].clone() for key in keys} for i in (-1, -2 - count % 3)]
        out = {key: value.clone() for key, value in batch.items()}
        for i, row in enumerate(stored):
            if all(row[key].shape == batch[key][0].shape for key in keys):
                for key in keys:
                    out[key][i] = row[key]
        return out

    def weight(self, ctx: Context) -> Any:
        self.called("weight")
        self.entropy = 0.5 * self.entropy + 0.5 * ctx.entropies[ctx.mask.bool()].mean()
        return ctx.mask * (1 + self.entropy)

    def surrogate(self, ctx: Context) -> Any:
        return (ctx.logps - ctx.old_logps).exp() * ctx.advantages * (1 + self.called("surrogate") / 10)


def everywhere(pooled: bool = False) -> Method:
    """The method."""
    m = Everywhere()
    return Method(
        "everywhere",
        sampler=m.sampler,
        rollout=m.rollout,
        reward=m,
        advantage=m.advantage,
        batch=m.batch,
        token_weight=m.weight,
        surrogate=m.surrogate,
        state=(m,),
        needs=frozenset({"logps"}),
        pooled=pooled,
    )

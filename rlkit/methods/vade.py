"""VADE: train on the prompts from which most can be learned now, chosen by a posterior over their success rates.

Paper: arXiv 2511.18902 (abstract and the authors' project page; the body could not be read). Each prompt has counts a
of right and b of wrong rollouts. Before every step, and after it for the prompts that were rolled out:

    p_i ~ Beta(a_i + 1, b_i + 1)          a Thompson draw
    I(p) = p (1 - p)^2                    the gain, largest at p = 1/3
    take the prompts with the largest I(p_i)
    (a, b) <- .99 (a, b) for every prompt, then (a, b) <- .5 (a, b) + (right, wrong) for those seen

What is different here, and why. The paper decays counts on two time scales whose constants could not be found: .5 per
visit and .99 per step are ours. A rollout is right when its reward is at least `right_at`. Draws are a function of
seed and step, so a resumed run draws the same. Loss, groups and the number of rollouts stay those of GRPO.

`strategy="expected"` is the greedy control: the expected gain under the posterior, without a draw; `gain="p(1-p)"` is
the symmetric control. A trap of the rule itself: prompts that look solved are not drawn again, so forgetting is not
noticed; `vade/oldest` logs how many steps ago the longest-unseen prompt was rolled out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method

GAINS = {"p(1-p)^2": 2, "p(1-p)": 1}
"""Kinds of gain, and the power of 1 - p in each."""


def gain(p: Tensor, kind: str = "p(1-p)^2") -> Tensor:
    """What a prompt with success rate `p` is worth: p (1 - p)^2, or p (1 - p). Any shape."""
    return p * (1 - p) ** GAINS[kind]


def expected_gain(a: Tensor, b: Tensor, kind: str = "p(1-p)^2") -> Tensor:
    """E[I(p)] for p ~ Beta(a, b), any shape: for p (1 - p)^2 it is a b (b + 1) / (n (n + 1) (n + 2)), n = a + b."""
    n = a + b
    pairs = a * b / (n * (n + 1))
    return pairs * (b + 1) / (n + 2) if GAINS[kind] == 2 else pairs


def thompson(a: Tensor, b: Tensor, seed: int, step: int) -> Tensor:
    """One draw from each Beta(a, b), a function of seed and step; torch's random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1_000_003 * seed + step)
        return torch.distributions.Beta(a, b).sample()


def learned(counts: Tensor, rows: Tensor, right: Tensor, per_step: float, per_visit: float) -> Tensor:
    """Counts after a step: all decay by `per_step`, those seen also by `per_visit`, then the rollouts are added.

    Args:
        counts: (2, n) right and wrong of each prompt.
        rows: (R,) the prompt of each rollout.
        right: (R,) bool.
        per_step: 0 to 1.
        per_visit: 0 to 1.

    Returns:
        (2, n).

    """
    added = torch.zeros_like(counts).index_put_(((~right).long(), rows), torch.ones(len(rows)), accumulate=True)
    return counts * per_step * torch.where(added.sum(0) > 0, per_visit, 1.0) + added


class Posterior:
    """What is known of each data-set row: counts of right, of wrong, and after which step it was last seen, (3, rows).

    Rows are known by `id`, else by their prompt.
    """

    def __init__(self) -> None:
        self.counts, self._row = torch.zeros(3, 0), dict[str, int]()

    def start(self, dataset: Any) -> None:
        """Make room for the rows of `dataset`, once.

        Raises:
            ValueError: rows that cannot be told apart, or restored counts of another data set.

        """
        if not self._row:
            column = "id" if "id" in dataset.column_names else "prompt"
            self._row = {str(key): i for i, key in enumerate(dataset[column])}
            if len(self._row) < len(dataset):
                twice = len(dataset) - len(self._row)
                raise ValueError(
                    f"vade knows rows by their {column!r}, and {twice} rows repeat one. Give each row an id."
                )
            self.counts = self.counts if self.counts.numel() else torch.zeros(3, len(dataset))
        if self.counts.size(1) != len(dataset):
            raise ValueError(f"The counts are of {self.counts.size(1)} prompts, and the data set has {len(dataset)}.")

    def state_dict(self) -> dict[str, Tensor]:
        """The counts."""
        return {"counts": self.counts}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Put back what `state_dict` gave."""
        self.counts = state["counts"].clone()

    def plan(self, ctx: Context, dataset: Any, rows: list[Any]) -> list[tuple[Any, int]]:
        """The `sampler` hook: as many prompts as `rows`, those with the largest gain."""
        strategy, kind = ctx.options["strategy"], ctx.options["gain"]
        if strategy == "off":
            return [(row, ctx.group_size) for row in rows]
        self.start(dataset)
        a, b = self.counts[:2] + 1
        if strategy not in ("thompson", "expected") or kind not in GAINS:
            raise ValueError(f"strategy {strategy!r}: 'thompson', 'expected', 'off'; gain {kind!r}: {list(GAINS)}.")
        worth = gain(thompson(a, b, ctx.seed, ctx.step), kind) if strategy == "thompson" else expected_gain(a, b, kind)
        ctx.log("vade/oldest", float(ctx.step - self.counts[2].min()))
        return [(dataset[i], ctx.group_size) for i in worth.topk(len(rows)).indices.tolist()]

    def advantage(self, ctx: Context) -> None:
        """The `advantage` hook: learns from the rewards, and leaves the advantages as they are."""
        assert ctx.rewards is not None and ctx.valid is not None
        o = ctx.options
        if o["strategy"] != "off":
            rows = torch.tensor([self._row[str(key)] for key in ctx.columns.get("id", ctx.columns["prompt"])])
            right = ctx.rewards[ctx.valid].cpu() >= o["right_at"]
            self.counts[:2] = learned(self.counts[:2], rows, right, o["per_step"], o["per_visit"])
            self.counts[2, rows] = ctx.step + 1.0


_posterior = Posterior()

VADE = Method(
    "vade",
    summary="prompts with the largest gain p(1-p)^2, by Thompson sampling",
    paper="2511.18902",
    parent="grpo",
    options={"strategy": "thompson", "gain": "p(1-p)^2", "per_visit": 0.5, "per_step": 0.99, "right_at": 1.0},
    reduces_to={"strategy": "off"},
    sampler=_posterior.plan,
    advantage=_posterior.advantage,
    state=(_posterior,),
)

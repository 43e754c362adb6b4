"""One-shot RLVR: train on one example, the one whose accuracy moved most while a model trained on all of them.

Paper: arXiv 2504.20571v3 (full text and released code read). A model is trained on the whole set for E epochs; s_ie is
the share of right rollouts of example i in epoch e. Examples are ranked by

    v_i = (1 / E) sum_e (s_ie - mean_e s_ie)^2                                    historical variance
    l_i = 1 - sum_e (s_ie - mean_i s_ie)^2 / sum_e (1 - mean_i s_ie)^2            the code's other score, LIM

and a few at one rank are copied until they fill a batch. Each copy is a group of its own: with 8 copies and 8 rollouts
there are 8 baselines over 8 rollouts, not one over 64. The loss is GRPO's with two more terms, and the optimizer is
AdamW with weight decay 0.01:

    L = L_PG + beta KL - c H,   beta = 0.001 (k3), c = 0.001

H is the mean entropy per token. The paper writes alpha = -0.001 and adds alpha H; TRL's `entropy_coef` is c.

What is different here, and why. Scores come from elsewhere (`rlkit.history.variance` of any run, or one's own), so that
no run is hidden in another. `examples` says how many to take, or which ids, or gives rows that need not be in the data;
`gold` puts another answer in their place (wrong, or out of reach). Rows are copied until they fill whole batches, each
as often. The switches of the loss are TRL's own settings, and `policy_gradient=False` sets every advantage to 0: KL,
weight decay and entropy still act. The paper clips at 0.2 and averages over tokens, as TRL does here; its learning
rate, batch of 128 copies and temperature 0.6 are the preset's here. It takes the checkpoint that is best on the test
sets: use a validation split (`validation_size`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method, near
from rlkit.methods.grpo import mean_centered

RANKS = ("highest", "medium", "lowest")


def variance_score(history: Tensor) -> Tensor:
    """The paper's score: how much the accuracy of an example moved. (n examples, E epochs) -> (n,); NaN: not drawn."""
    return ((history - history.nanmean(1, keepdim=True)) ** 2).nanmean(1)


def lim_score(history: Tensor) -> Tensor:
    """LIM: 1 where an example learns in step with the mean of all, lower the further it is from that.

    Args:
        history: (n examples, E epochs), the share of right rollouts; NaN where an example was not drawn.

    Returns:
        (n,); NaN where all examples were always right, or one was never drawn.

    """
    mean = history.nanmean(0, keepdim=True)
    seen = ~history.isnan()
    room = torch.where(seen, (1 - mean) ** 2, 0.0).sum(1)
    return 1 - ((history - mean) ** 2).nansum(1) / torch.where(room > 0, room, math.nan)


def ranking(scores: Mapping[Any, float]) -> list[Any]:
    """Names from the highest score to the lowest; equal scores by name, so that the order is the same everywhere."""
    return sorted(scores, key=lambda name: (-scores[name], str(name)))


def at_rank(order: Sequence[Any], count: int, rank: str | int = "highest") -> list[Any]:
    """`count` neighbours of a ranking: from the top, around the middle, at the bottom, or from the j-th on (from 1)."""
    if count > len(order):
        raise ValueError(f"{count} examples are wanted and {len(order)} have a score.")
    if isinstance(rank, int):
        if not 1 <= rank <= len(order) - count + 1:
            raise ValueError(f"rank {rank}: {count} of {len(order)} examples start at 1 to {len(order) - count + 1}.")
        start = rank - 1
    elif rank in RANKS:
        start = {"highest": 0, "medium": (len(order) - count) // 2, "lowest": len(order) - count}[rank]
    else:
        raise ValueError(f"There is no rank {rank!r}. A number, or: {near(str(rank), RANKS)}")
    return list(order[start : start + count])


def copies(rows: Sequence[Mapping[str, Any]], batch: int) -> list[dict[str, Any]]:
    """The rows over and over until whole batches of `batch` prompts are full, each as often, each copy with its own id.

    The fewest copies that do: one row and a batch of 8 give 8, 3 rows give 24, 16 rows stay 16.
    """
    times = math.lcm(len(rows), batch) // len(rows)
    names = [str(row.get("id", number)) for number, row in enumerate(rows)]
    return [
        {**row, "id": f"{name}/copy {copy + 1}" if times > 1 else name}
        for copy in range(times)
        for name, row in zip(names, rows, strict=True)
    ]


def chosen_rows(dataset: Any, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The examples that the options name, as rows: how many (at a rank of `scores`, or the first), which ids, or rows.

    Raises:
        ValueError: none, an id that the data do not have, or more than have a score.

    """
    wanted, scores = options["examples"], options["scores"]
    if isinstance(wanted, int):
        if scores is None:
            if not 1 <= wanted <= len(dataset):
                raise ValueError(f"examples={wanted}, but the data have {len(dataset)} rows; take 1 or more of them.")
            return [dict(dataset[i]) for i in range(wanted)]
        wanted = at_rank(ranking(scores), wanted, options["rank"])
    if not wanted:
        raise ValueError("examples names none: say how many, give their ids, or give rows.")
    ids = [str(name) for name in dataset["id"]] if "id" in dataset.column_names else []
    return [dict(one) if isinstance(one, Mapping) else dict(dataset[_place(str(one), ids)]) for one in wanted]


def _place(name: str, ids: Sequence[str]) -> int:
    if name not in ids:
        raise ValueError(
            f"No row of the data has the id {name!r}. {near(name, ids)} The rows of a task depend on the seed: "
            "train_seed=0 gives every seed the same ones; or give the row itself."
        )
    return ids.index(name)


def few_examples(dataset: Any, trainer: Any) -> Any:
    """The data set of the chosen examples, copied to fill the batch; with another gold where `gold` says so."""
    options = trainer.method.options
    if options["examples"] is None:
        return dataset
    rows = chosen_rows(dataset, options)
    if options["gold"] is not None:
        rows = [{**row, "gold": options["gold"]} for row in rows]
    batch = trainer.args.generation_batch_size // trainer.num_generations
    return type(dataset).from_list(copies(rows, batch))


def _advantage(ctx: Context) -> Tensor | None:
    """TRL's own advantage, or 0 for every rollout; logs the share of groups that have one at all."""
    assert ctx.rewards is not None
    spread = (mean_centered(ctx.rewards).nan_to_num().abs() > 0).any(1)
    ctx.log("groups_with_advantage", float(spread.float().mean()))
    return None if ctx.options["policy_gradient"] else torch.zeros_like(ctx.rewards)


ONE_SHOT = Method(
    "one_shot",
    summary="one example, picked by how much its accuracy moved, copied to fill the batch",
    paper="2504.20571",
    parent="grpo",
    config={"beta": 0.001, "entropy_coef": 0.001, "weight_decay": 0.01},
    options={"examples": 1, "scores": None, "rank": "highest", "gold": None, "policy_gradient": True},
    reduces_to={"examples": None, "beta": 0.0, "entropy_coef": 0.0, "weight_decay": 0.0},
    data=few_examples,
    advantage=_advantage,
)

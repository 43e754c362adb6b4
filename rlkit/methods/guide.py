"""Guide: groups that fail are drawn again under a hint and trained under the plain prompt.

Paper: arXiv 2506.13923 (released code read). For a prompt x without a right rollout, with a hint h:

    y ~ pi_old(. | x, h) replaces the failed group;   rho_t = pi(y_t | x) / pi_old(y_t | x, h)
    hinted rows    A s(rho), s = rho / (rho + gamma), gamma = 90th percentile of the hinted ratios, detached; no clip
    other rows     min(rho A, clip(rho, .8, 1.2) A)
    A is the z-score in the group that stays; loss a mean over tokens

What is different here, and why. The paper's hints are texts written beforehand. Here a hint is the first half of a
worked solution, set behind the prompt, from which a base that reads no instructions goes on. What is trained is the
hint and the rest together (`restate=True`): told how to begin, a policy begins so with probability 1, hence 0 as old
log-prob of the hint's tokens. With hints in words set `restate=False`: the completion stands alone. The percentile is
over all positions of a micro-batch of one row there, padding included; here over the hinted tokens of the
accumulation window. Groups without spread stay, with advantage 0; there they are dropped and drawing goes on until
the batch is full. The failed rollouts are charged to `generated_tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.gspo import clipped, loss_time
from rlkit.methods.hints import failed, hinted_rows


def shaped(ratio: Tensor, hinted: Tensor, percentile: float = 0.9) -> Tensor:
    """Guide's s(rho) = rho / (rho + gamma), gamma the percentile of the ratios in `hinted`, at least 1e-4.

    Args:
        ratio: (B, T) pi / pi_old.
        hinted: (B, T) bool, the tokens of hinted rows.
        percentile: 0 to 1, linear between ranks.

    Returns:
        (B, T); the gradient goes through `ratio`, not through gamma.

    """
    if not hinted.any():
        return ratio
    gamma = torch.quantile(ratio.detach()[hinted].float(), percentile).clamp(min=1e-4)
    return ratio / (ratio + gamma)


def rollout(ctx: Context, rows: Sequence[Any], trainer: Any) -> list[dict[str, Any]]:
    """Plain rollouts; groups without a right one are drawn again under a hint and trained under the plain prompt."""
    o = ctx.options
    out = [{**got, "hinted": 0} for got in trainer.generate_rows(rows)]
    if not o["hint"]:
        return out
    again = failed(trainer.grade(rows, [got["completion_ids"] for got in out]), ctx.groups, o["right_at"])
    ctx.log("guide/hinted", len(again) / len(rows))
    if not again:
        return out
    drawn = hinted_rows([rows[i] for i in again], o["hint"], trainer)
    logps, _ = trainer.score([got["prompt_ids"] for got in drawn], [got["completion_ids"] for got in drawn])
    for i, got, scored in zip(again, drawn, logps, strict=True):
        ids, start = got["completion_ids"], []
        if o["restate"]:
            start = trainer.processing_class(got["hint"], add_special_tokens=False)["input_ids"]
        old = [0.0] * len(start) + scored[: len(ids)].tolist()
        longest = trainer.max_completion_length
        out[i] = {"prompt_ids": out[i]["prompt_ids"], "completion_ids": [*start, *ids][:longest], "hinted": 1}
        out[i] |= {"sample_prompt_ids": got["prompt_ids"], "old_logps": old[:longest]}
    return out


def objective(ctx: Context) -> Tensor:
    """PPO's clip on plain rows, the shaped ratio on hinted ones."""
    log_ratio, A, mask = loss_time(ctx)
    ratio, o = log_ratio.exp(), ctx.options
    hinted = (ctx.extras["hinted"][:, None] > 0) & mask.bool()
    plain = clipped(ratio, A, 1 - o["epsilon"], 1 + o["epsilon"])
    return torch.where(hinted, shaped(ratio, hinted, o["percentile"]) * A, plain)


GUIDE = Method(
    "guide",
    summary="groups that fail are drawn again with a hint, trained without it under a shaped ratio",
    paper="2506.13923",
    parent="grpo",
    options={"hint": 0.5, "restate": True, "percentile": 0.9, "epsilon": 0.2, "right_at": 1.0},
    reduces_to={"hint": 0.0},
    rollout=rollout,
    surrogate=objective,
    pooled=True,
)

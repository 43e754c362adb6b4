"""Pure functions on the rows of a micro-batch: which carry gradient, taking them out, trimming their padding.

A micro-batch is TRL's dict of tensors. B rows, P prompt tokens (padded on the left), T completion tokens (padded on the
right). Beside TRL's keys it has `counted` (B,) bool: False for a row that a method's `keep` has taken out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Batch = dict[str, Any]

PER_ROW = frozenset({"grpo", "sapo", "dr_grpo", "luspo"})
"""Losses that divide by the number of rows of the micro-batch."""
PROMPT_KEYS = ("prompt_ids", "prompt_mask")
LOGPS = ("old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps")
COEFFICIENTS = ("advantages", "coefficients")
TOKEN_KEYS = ("objective", "weights", "entropies")
COMPLETION_KEYS = (
    *("completion_ids", "completion_mask", "tool_mask", "importance_sampling_ratio"),
    *(*COEFFICIENTS, *TOKEN_KEYS, *LOGPS),
)
"""Tensors with one column a completion token; some can also be one value a row."""
NOT_OURS = -1
"""`drawn_at` of a row that brought its own log-probs along, or was drawn under another prompt."""


def loss_mask(batch: Batch) -> Tensor:
    """(B, T) 1 where a token counts in the loss: completion tokens that the policy wrote itself."""
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def old_logps(batch: Batch, logps: Tensor, step: int) -> Tensor:
    """(B, T) log-probs of the policy that drew the rows.

    Rows that were drawn in this very optimiser step get `logps`, the present ones: scored in another batch they differ
    in the last digits, and the ratio of a fresh row is 1, not nearly 1.
    """
    old = batch.get("old_per_token_logps")
    if old is None:
        return logps
    fresh = batch["drawn_at"] == step if "drawn_at" in batch else torch.zeros_like(batch["counted"])
    return torch.where(fresh[:, None], logps, old)


def carries_gradient(batch: Batch) -> Tensor:
    """(B,) bool: rows with a token in the loss whose advantage, or coefficient where there is one, is not 0."""
    parts = [batch[key].reshape(len(batch[key]), -1).ne(0).any(1) for key in COEFFICIENTS if key in batch]
    return torch.stack(parts).any(0) & loss_mask(batch).bool().any(1)


def take(batch: Batch, index: Tensor) -> Batch:
    """The rows of `index`, from every tensor or list that has one entry a row; the rest is passed on."""
    rows = len(batch["counted"])
    out: Batch = {}
    for key, value in batch.items():
        if isinstance(value, Tensor) and value.ndim and len(value) == rows:
            out[key] = value[index]
        elif isinstance(value, list) and len(value) == rows:
            out[key] = [value[i] for i in index.tolist()]
        else:
            out[key] = value
    return out


def silence(batch: Batch, real: Tensor) -> Batch:
    """Rows that are not `real` get coefficient 0 and an empty completion, so that they stay out of loss and metrics.

    Their stored log-probs become 0 like the log-probs that TRL gives to masked tokens; else the ratio could overflow.
    """
    out = dict(batch)
    for key in (*COEFFICIENTS, "completion_mask", *LOGPS):
        if key in batch:
            value = batch[key]
            out[key] = value.where(real.view(-1, *[1] * (value.ndim - 1)), torch.zeros_like(value))
    return out


def trim(batch: Batch, prompts: bool = True) -> Batch:
    """Cut padding down to the longest row, on the right of completions and, if `prompts`, on the left of prompts."""
    width = batch["completion_ids"].size(1)
    longest = max(1, int(batch["completion_mask"].sum(1).max()))
    out = dict(batch)
    for key in COMPLETION_KEYS:
        if key in batch and batch[key].ndim == 2 and batch[key].size(1) == width:
            out[key] = batch[key][:, :longest]
    if prompts:
        widest = max(1, int(batch["prompt_mask"].sum(1).max()))
        for key in PROMPT_KEYS:
            out[key] = batch[key][:, -widest:]
    return out


def row_factor(loss_type: str, batch: Batch, chosen: Batch, counted_per_micro_batch: Tensor) -> Tensor | None:
    """What turns TRL's loss over the chosen rows into the loss over all counted rows; None where it is that already.

    `dapo`, `cispo` and `vespo` divide by `num_items_in_batch`, which says all counted tokens already.

    Args:
        loss_type: TRL's name of the loss.
        batch: the whole micro-batch.
        chosen: the rows that are trained.
        counted_per_micro_batch: mean number of counted rows of a micro-batch, over the generation batch and all ranks.

    """
    if loss_type in PER_ROW:
        return len(chosen["counted"]) / counted_per_micro_batch.clamp(min=1e-9)
    if loss_type == "bnpo":
        every = loss_mask(batch)[batch["counted"]].sum()
        return loss_mask(chosen).sum() / every.clamp(min=1)
    return None


def local_part(values_BT: Tensor, rows: int, rank: int, width: int) -> Tensor:
    """This rank's (rows, width) of global per-token advantages (B, T); 0 where completions are padded beyond T."""
    part = values_BT[rank * rows : (rank + 1) * rows, :width]
    return torch.nn.functional.pad(part, (0, width - part.size(1)))

"""Uniform replay: train on rows drawn from the last N rollouts instead of on the fresh ones only.

Paper: arXiv 2604.08706 (full text read). A first-in first-out buffer holds N rollouts with the log-probs and the
advantage that each had when it was drawn; the advantage is never computed again. A batch is drawn uniformly and stays
in the buffer. The loss is GRPO's clip with rho_t = pi / pi_old, pi_old the policy that drew the row.

What is different here, and why. The paper's workers and trainers run side by side; here a step first puts its R fresh
rows into the buffer and then trains `repeat` * R rows from it, so that B / R = `repeat`. Rows are drawn without
putting back within a batch; while the buffer has fewer than are wanted, whole copies of it come first. N = 256 is
ours. Rows that a method has taken out of its batch (`keep`) are not stored. This is the plain version: no age limit,
no bias to right answers. `replay/age` logs the mean age of the trained rows in optimiser steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlkit.method import Method

PROMPT = ("prompt_ids", "prompt_mask")
Row = dict[str, Tensor]


def cut(batch: dict[str, Any]) -> list[Row]:
    """The rows of a batch, each without its padding; what is not one entry a row is left out."""
    B, T = batch["completion_ids"].shape
    per_row = {k: v.detach().cpu() for k, v in batch.items() if isinstance(v, Tensor) and v.ndim and len(v) == B}
    prompt, completion = per_row["prompt_mask"].bool(), per_row["completion_mask"].bool()

    def part(key: str, value: Tensor, i: int) -> Tensor:
        long = value.ndim == 2 and value.size(1) == T
        return (value[i][prompt[i]] if key in PROMPT else value[i][completion[i]] if long else value[i]).clone()

    return [{key: part(key, value, i) for key, value in per_row.items()} for i in range(B)]


def join(rows: Sequence[Row], like: dict[str, Any], pad: int) -> dict[str, Any]:
    """A batch of these rows: prompts padded on the left, completions on the right; the rest is taken from `like`."""
    out = dict(like)
    for key in rows[0]:
        side, fill = "left" if key in PROMPT else "right", pad if key.endswith("_ids") else 0
        values = [row[key] for row in rows]
        padded = pad_sequence([v.view(-1) for v in values], batch_first=True, padding_value=fill, padding_side=side)
        out[key] = (padded if values[0].ndim else padded[:, 0]).to(like["completion_ids"].device)
    return out


def draw(size: int, count: int, seed: int) -> list[int]:
    """`count` of `size` rows, uniform without putting back; whole copies first where more are wanted than there are."""
    whole, rest = divmod(count, size)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return [*range(size)] * whole + order[:rest].tolist()


class Buffer:
    """The last N rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def batch(self, trainer: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """Put the fresh rows in and draw the batch to train; rows that do not count go along as they are."""
        o, step = trainer.method.options, trainer.state.global_step
        if not o["buffer"]:
            return batch
        rows = [{**row, "born": torch.tensor(step)} for row in cut(batch)]
        fresh = [row for row in rows if row["counted"]]
        silent = [row for row in rows if not row["counted"]]
        self.rows = [*self.rows, *fresh][-max(o["buffer"], len(fresh)) :]
        seed = 1_000_003 * trainer.args.seed + 1_009 * step + trainer.accelerator.process_index
        drawn = [self.rows[i] for i in draw(len(self.rows), o["repeat"] * len(fresh), seed)]
        out = join([*drawn, *silent * o["repeat"]], batch, trainer.processing_class.pad_token_id)
        out["age"] = step - out.pop("born")
        trainer.log_value("replay/age", float(out["age"][out["counted"]].float().mean()))
        return out

    def state_dict(self) -> dict[str, Any]:
        """The rows."""
        return {"rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.rows = list(state["rows"])


_buffer = Buffer()

REPLAY = Method(
    "replay",
    summary="batches drawn uniformly from the last rollouts",
    paper="2604.08706",
    parent="grpo",
    options={"buffer": 256, "repeat": 1},
    reduces_to={"buffer": 0},
    batch=_buffer.batch,
    state=(_buffer,),
    needs=frozenset({"logps"}),
)

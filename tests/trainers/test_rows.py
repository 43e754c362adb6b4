"""Rows of a micro-batch: values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlkit.trainers import rows


def _batch() -> dict[str, Any]:
    """4 rows of 2, 1, 0 and 3 completion tokens, after prompts of 1, 2, 1 and 1 tokens; the last does not count."""
    return {
        "prompt_ids": torch.tensor([[0, 0, 5], [0, 6, 7], [0, 0, 8], [0, 0, 9]]),
        "prompt_mask": torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 1], [0, 0, 1]]),
        "completion_ids": torch.tensor([[1, 2, 0, 0], [3, 0, 0, 0], [4, 4, 0, 0], [1, 1, 1, 0]]),
        "completion_mask": torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0]]),
        "advantages": torch.tensor([1.0, 0.0, 2.0, 3.0]),
        "old_per_token_logps": torch.full((4, 4), -2.0),
        "importance_sampling_ratio": torch.ones(4, 1),
        "counted": torch.tensor([True, True, True, False]),
        "names": ["a", "b", "c", "d"],
        "num_items_in_batch": torch.tensor(3),
    }


def test_a_row_carries_gradient_with_an_advantage_and_a_token() -> None:
    assert rows.carries_gradient(_batch()).tolist() == [True, False, False, True]
    by_token = _batch() | {"advantages": torch.tensor([[0.0, 0], [0, 1], [1, 1], [0, 0]])}
    assert rows.carries_gradient(by_token).tolist() == [False, True, False, False]
    tools = _batch() | {"tool_mask": torch.tensor([[0, 0, 1, 1]] * 4)}
    assert rows.loss_mask(tools).sum(1).tolist() == [0, 0, 0, 1]


def test_take_picks_from_everything_that_has_rows() -> None:
    taken = rows.take(_batch(), torch.tensor([3, 0, 0]))
    assert taken["completion_ids"][:, 0].tolist() == [1, 1, 1] and taken["prompt_ids"][:, 2].tolist() == [9, 5, 5]
    assert taken["names"] == ["d", "a", "a"] and taken["num_items_in_batch"] == 3
    assert {len(v) for v in taken.values() if not isinstance(v, torch.Tensor) or v.ndim} == {3}


def test_silenced_rows_have_no_advantage_no_token_and_log_prob_zero() -> None:
    batch = _batch()
    quiet = rows.silence(batch, torch.tensor([True, False, True, False]))
    assert quiet["advantages"].tolist() == [1, 0, 2, 0]
    assert quiet["completion_mask"].sum(1).tolist() == [2, 0, 0, 0]
    assert quiet["old_per_token_logps"][:, 0].tolist() == [-2, 0, -2, 0]
    assert torch.equal(quiet["completion_ids"], batch["completion_ids"])
    assert batch["advantages"].tolist() == [1, 0, 2, 3]  # the micro-batch may be used again


def test_trim_cuts_to_the_longest_row_on_both_sides() -> None:
    cut = rows.trim(_batch())
    assert cut["completion_ids"].shape == cut["completion_mask"].shape == cut["old_per_token_logps"].shape == (4, 3)
    assert cut["prompt_ids"].tolist() == [[0, 5], [6, 7], [0, 8], [0, 9]]
    assert cut["advantages"].shape == (4,) and cut["importance_sampling_ratio"].shape == (4, 1)
    assert rows.trim(_batch(), prompts=False)["prompt_ids"].shape == (4, 3)
    empty = rows.silence(_batch(), torch.zeros(4, dtype=torch.bool))
    assert rows.trim(empty)["completion_ids"].shape == (4, 1)  # one column stays, so that there is something to run


def test_factors_hand_computed() -> None:
    batch = _batch()
    chosen = rows.take(batch, torch.tensor([0]))
    count = torch.tensor(3.0)  # rows that count in a micro-batch
    for loss in ("grpo", "dr_grpo", "sapo", "luspo"):
        factor = rows.row_factor(loss, batch, chosen, count)
        assert factor is not None and factor.item() == pytest.approx(1 / 3)
    factor = rows.row_factor("bnpo", batch, chosen, count)
    assert factor is not None and factor.item() == pytest.approx(2 / 3)  # 2 of 3 counted tokens
    assert [rows.row_factor(loss, batch, chosen, count) for loss in ("dapo", "cispo", "vespo")] == [None] * 3
    empty = rows.silence(batch, torch.zeros(4, dtype=torch.bool))
    factor = rows.row_factor("bnpo", empty, empty, count)
    assert factor is not None and math.isfinite(factor.item())


def test_each_rank_gets_its_part_of_token_advantages() -> None:
    values = torch.arange(12.0).view(4, 3)
    assert rows.local_part(values, 2, 1, 3).tolist() == [[6, 7, 8], [9, 10, 11]]
    assert rows.local_part(values, 2, 0, 2).tolist() == [[0, 1], [3, 4]]
    assert rows.local_part(values, 2, 0, 4).tolist() == [[0, 1, 2, 0], [3, 4, 5, 0]]

"""Bytes that losses keep: the explicit one as counted by hand, all of them with one value."""

from __future__ import annotations

import pytest

from rlkit.loss_memory import LOSSES, loss_memory

SIZE = {"tokens": 40, "vocabulary": 4000, "width": 8}


def test_the_dense_loss_keeps_three_numbers_an_entry_of_the_kept_rows() -> None:
    """Log-softmax of the student, its exponential, and the difference of both models: 3 times 4 bytes."""
    found = loss_memory(["dense"], [1.0, 0.5, 0.1], **SIZE)
    assert found["retained"].tolist() == [pytest.approx(12 * share, abs=0.01) for share in (1.0, 0.5, 0.1)]
    assert (found["peak"] > 8).all()  # the logits of both models, whatever is kept


def test_all_losses_are_one_number() -> None:
    found = loss_memory(list(LOSSES), [1.0, 0.25], **SIZE)
    for _, part in found.groupby("retention"):
        assert part["value"].tolist() == [pytest.approx(part["value"].iloc[0], rel=1e-4)] * len(LOSSES)


def test_kept_rows_keep_next_to_nothing_and_peak_with_what_is_kept() -> None:
    found = loss_memory(["kept rows"], [1.0, 0.1], **SIZE).set_index("retention")
    assert (found["retained"] < 0.1).all()
    assert found["peak"][0.1] == pytest.approx(found["peak"][1.0] / 10, rel=0.1)

"""One-digit sums: splits, grading by hand."""

from __future__ import annotations

import pytest

from rlkit.tasks.base import SPLITS, get_task
from rlkit.tasks.sums import answer_in, exact, graded


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_splits_share_no_pair_in_either_order_and_hold_all_sums() -> None:
    rows = {split: get_task("sums").dataset(split, 100) for split in SPLITS}
    pairs = {s: {frozenset(i.split("/")[1].split("+")) for i in part["id"]} for s, part in rows.items()}
    assert sum(len(part) for part in rows.values()) == 100
    assert sum(len(found) for found in pairs.values()) == 55  # unordered pairs of ten numbers
    assert 40 <= len(rows["train"]) <= 60 and len(rows["test"]) >= 30


def test_rows_are_chat_and_their_order_comes_from_the_seed() -> None:
    task = get_task("sums")
    row = task.dataset("train", 1, seed=3)[0]
    a, b = row["id"].removeprefix("train/").split("+")
    assert row["prompt"][-1] == {"role": "user", "content": f"{a} + {b}"} and row["gold"] == str(int(a) + int(b))
    first, again, other = (task.dataset("train", 100, seed=seed)["id"] for seed in (0, 0, 1))
    assert list(first) == list(again) != list(other) and sorted(first) == sorted(other)


@pytest.mark.parametrize(
    ("text", "answer", "grade"),
    [
        pytest.param("7", 7, 1.0, id="alone"),
        pytest.param("3 + 4 = 7.", 7, 1.0, id="last number, full stop behind it"),
        pytest.param("It is 9", 9, 0.4, id="off by two"),
        pytest.param("99", 99, 0.0, id="far off"),
        pytest.param("seven", None, 0.0, id="no digit"),
        pytest.param("", None, 0.0, id="nothing"),
        pytest.param("7.5", None, 0.0, id="no whole number"),
        pytest.param("12345678901234567890", None, 0.0, id="too long to be one"),
    ],
)
def test_answers_and_grades_by_hand(text: str, answer: int | None, grade: float) -> None:
    assert answer_in(text) == answer
    assert graded([said(text)], ["7"]) == pytest.approx([grade])
    assert exact([said(text)], ["7"]) == [float(answer == 7)]

"""Word problems and sums from reasoning-gym."""

from __future__ import annotations

import re
import sys

import pytest

from rlkit.tasks.base import SPLITS, get_task

pytest.importorskip("reasoning_gym")


@pytest.mark.parametrize("name", ["gsm_symbolic", "chain_sum"])
def test_splits_are_disjoint_for_all_seeds(name):
    task = get_task(name)
    parts = {
        split: {p for seed in (0, 1, 2) for p in task.dataset(split, 150, seed=seed)["prompt"]} for split in SPLITS
    }
    assert sum(map(len, parts.values())) == len(set.union(*parts.values()))
    assert all(len(part) > 400 for part in parts.values())


@pytest.mark.parametrize("name", ["gsm_symbolic", "chain_sum"])
def test_rows_are_the_same_again_and_every_gold_grades_itself(name):
    task = get_task(name)
    rows = task.dataset("train", 200)
    assert rows.to_dict() == task.dataset("train", 200).to_dict()
    assert rows["id"][:50] == task.dataset("train", 50)["id"]
    assert set(rows.column_names) == {"prompt", "gold", "id", "difficulty"}
    assert len(set(rows["id"])) == 200
    assert all(difficulty >= 1 for difficulty in rows["difficulty"])
    assert task.correct([task.solution(gold) for gold in rows["gold"]], rows["gold"]) == [1.0] * 200


def test_the_gold_of_a_sum_is_its_value():
    for row in get_task("chain_sum", terms=3, digits=3).dataset("validation", 50):
        found = re.search(r"problem: (.*) =", row["prompt"])[1].replace(" ", "")
        assert sum(map(int, re.findall(r"[+-]?[0-9]+", found))) == int(row["gold"])
        assert row["difficulty"] == 3


def test_a_split_that_is_used_up_says_how_many_there_are():
    with pytest.raises(ValueError, match=r"has only \d+ problems in 'test', not 500"):
        get_task("chain_sum", terms=2, digits=1).dataset("test", 500)


def test_options_out_of_range_are_refused():
    with pytest.raises(ValueError, match="terms from 2 to 50"):
        get_task("chain_sum", terms=1)


def test_without_reasoning_gym_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ImportError, match=r"rlkit-lab\[reasoning\]"):
        get_task("gsm_symbolic").dataset("train", 1)

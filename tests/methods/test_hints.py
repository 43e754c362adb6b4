"""Hints: starts of solutions, groups that failed, and which groups are useful."""

import pytest
import torch

from rlkit.methods import hints


def test_a_worked_solution_comes_from_the_data_set():
    row = {"prompt": "14-1+15?", "gold": "28", "steps": "14-1=13;13+15=28"}
    assert hints.worked_solution(row) == "14-1=13;13+15=28#28"
    assert hints.worked_solution({**row, "solution": "easy#28"}) == "easy#28"
    with pytest.raises(ValueError, match="needs the column 'solution', or 'steps' and 'gold'; the row has"):
        hints.worked_solution({"prompt": "1+1?", "gold": "2"})


def test_starts_are_whole_characters_and_never_more_than_asked():
    assert [hints.start_of("12345678", share / 8) for share in (0, 1, 3, 8)] == ["", "1", "123", "12345678"]
    assert hints.start_of("abc", 1 / 3) == "a"
    assert hints.start_of("", 0.5) == ""


def test_hints_stand_behind_texts_and_chats():
    assert hints.with_hint("14-1?", "14-") == "14-1?14-"
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "14-1?"}]
    assert hints.with_hint(chat, "14-")[-1] == {"role": "user", "content": "14-1?\n14-"}
    assert hints.with_hint(chat, "") == chat
    assert chat[1]["content"] == "14-1?"


def test_failed_groups_are_those_without_a_right_rollout():
    rewards = [0.0, 1.0, 0.0, 0.0, float("nan"), 0.0, 0.5]
    assert hints.failed(rewards, [0, 0, 1, 1, 2, 2, 2], right_at=1.0) == [2, 3, 4, 5, 6]
    assert hints.failed(rewards, [0, 0, 1, 1, 2, 2, 2], right_at=0.5) == [2, 3]


def test_useful_groups_of_hand_computed_rates():
    assert hints.useful(torch.tensor([0.01, 0.1, 0.5]), 8).tolist() == pytest.approx([0.0773, 0.5695, 0.9922], abs=5e-5)

"""The reward `math` in TRL's signature."""

from __future__ import annotations

import pytest

import rlkit


def test_it_reads_the_gold_from_any_of_three_columns():
    said = [r"\boxed{5}", r"\boxed{6}"]
    for column in ("gold", "solution", "answer"):
        assert rlkit.rewards.math(prompts=["", ""], completions=said, **{column: ["5", "#### 5"]}) == [1.0, 0.0]


def test_it_takes_chat_messages_and_leaves_out_empty_golds():
    said = [[{"role": "assistant", "content": r"\boxed{5}"}], [{"role": "assistant", "content": ""}]]
    assert rlkit.rewards.math(completions=said, gold=["5", ""]) == [1.0, None]


def test_it_counts_text_golds_and_limits():
    logged = {}
    hostile = r"\boxed{((((x+1)^{99}+1)^{99}+1)^{99}+1)^{99}}"
    said = [hostile, r"\boxed{even}", r"\boxed{5}", ""]
    grades = rlkit.rewards.math(said, gold=["x+1", "even", "5", "5"], log_metric=logged.__setitem__)
    assert grades == [0.0, 1.0, 1.0, 0.0]
    assert logged == {"gold_as_text": 0.25, "grading_limited": 0.25}


def test_a_missing_column_is_an_error():
    with pytest.raises(ValueError, match="gold, solution or answer"):
        rlkit.rewards.math(completions=[""], label=["5"])


def test_it_trains_through_trl(build):
    trainer = build(reward=rlkit.rewards.math)
    trainer.train()
    assert all("rewards/math/mean" in line for line in trainer.state.log_history if "loss" in line)

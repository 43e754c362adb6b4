"""POPE: the shortest start that helps, and the data set of guided and plain copies."""

import pytest
import torch

from rlkit.methods import pope
from rlkit.methods.grpo import mean_centered
from tests.tiny import tiny_data

SHARES = (0.0, 1 / 8, 2 / 8, 3 / 8)


def test_the_shortest_start_of_hand_computed_successes():
    assert pope.shortest_start(SHARES, (0, 0, 1, 5)) == 2 / 8
    assert pope.shortest_start(SHARES, (0, 0, 0, 0)) == 1 / 4
    assert mean_centered(torch.tensor([[0.0] * 7 + [1.0]])).unique().tolist() == pytest.approx([-0.125, 0.875])


def test_a_guided_prompt_holds_instruction_and_start():
    row = {"prompt": "14-1+15?", "gold": "28", "steps": "14-1=13;13+15=28"}
    assert pope.guided_prompt(row, 0.25) == "14-1+15?14-1"
    assert pope.guided_prompt(row, 0.25, "=") == "14-1+15?=14-1"
    assert pope.guided_prompt(row, 0.0) == row["prompt"]


def _data(size=16):
    return (
        tiny_data(size)
        .add_column("solution", [f"{i}+{i}={2 * i}#0" for i in range(size)])
        .map(lambda row: {"id": f"train/{row['id']}"})
    )


def hopeless_without_a_start(prompts, completions, **columns):
    """Right only behind a start of two characters or more; prompts end with `?`."""
    return [float(len(prompt.split("?")[1]) >= 2) for prompt in prompts]


def test_hard_prompts_come_twice_and_the_scan_is_charged(build):
    trainer = build(
        method=pope.POPE.with_options(samples=2), reward=hopeless_without_a_start, data=_data(), max_steps=1
    )
    rows = trainer.train_dataset
    assert len(rows) == 32
    assert trainer.generated_tokens > 0
    plain, guided = rows.filter(lambda r: not r["guided"]), rows.filter(lambda r: r["guided"] > 0)
    assert sorted(plain["id"]) == sorted(name.removesuffix("/guided") for name in guided["id"])
    assert all(
        len(prompt.split("?")[1]) == int(share * len(text))
        for prompt, share, text in zip(guided["prompt"], guided["guided"], guided["solution"], strict=True)
    )
    helped = [row for row in guided if len(row["prompt"].split("?")[1]) >= 2]
    assert {row["guided"] for row in helped} <= {0.25, 0.375}
    assert len(helped) == 16
    trainer.train()


def solved_if_even(prompts, completions, id, **columns):
    return [float(int(name.split("/")[1]) % 2 == 0) for name in id]


def test_prompts_that_are_not_hard_leave_or_stay(build):
    for easy, expected in ((False, 16), (True, 24)):
        method = pope.POPE.with_options(samples=1, easy=easy)
        trainer = build(method=method, reward=solved_if_even, data=_data(), max_steps=1)
        assert len(trainer.train_dataset) == expected


def test_a_data_set_without_hard_prompts_is_refused(build):
    def solved(completions, **columns):
        return [1.0] * len(completions)

    with pytest.raises(ValueError, match="No prompt failed all 8 rollouts"):
        build(method="pope", reward=solved, data=_data())

"""Reward functions that break: the error names the function and the call, and nothing trained before is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny import Build, history, length_reward


def _train(build: Build, **options: Any) -> Any:
    trainer = build(**{"max_steps": 1, **options})
    trainer.train()
    return trainer


@pytest.mark.parametrize("awaited", [False, True], ids=["called", "awaited"])
def test_a_function_that_raises_is_named_and_the_run_goes_on_from_the_checkpoint_before(
    build: Build, tmp_path: Path, awaited: bool
) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4}
    whole = _train(build, **options, output_dir=str(tmp_path / "whole"))
    calls = []

    def shaky(completions: Sequence[Any], **columns: Any) -> Any:
        calls.append(len(completions))
        if len(calls) == 3:
            raise ZeroDivisionError("no such grade")
        return length_reward(completions)

    async def later(completions: Sequence[Any], **columns: Any) -> Any:
        return shaky(completions, **columns)

    reward = later if awaited else shaky
    told = rf"no such grade\nin reward function '{reward.__name__}', call 3, 32 completions"
    with pytest.raises(ZeroDivisionError, match=told):
        _train(build, reward=reward, **options)
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]
    again = build(reward=reward, **options)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert calls == [32] * 5  # steps 1, 2, the one that failed, 3 and 4
    names = ("loss", "grad_norm", "reward", "num_tokens")
    assert history(again, *names)[2:] == history(whole, *names)[2:]
    assert len(history(again, *names)) == 4


def test_a_failed_run_of_a_grid_names_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rlkit
    from rlkit.runs import RunError

    monkeypatch.setenv("RLKIT_HOME", str(tmp_path))

    def shaky(completions: Sequence[Any], **columns: Any) -> Any:
        return [float(text) for text in ["x", *completions]]

    told = r"ValueError: could not convert string to float: 'x' \(in reward function 'shaky', call 1, 4 completions\)"
    shape: dict[str, Any] = {"prompts_per_step": 1, "num_generations": 4, "max_steps": 1, "train_size": 8}
    with pytest.raises(RunError, match=told):
        rlkit.run(["grpo"], preset="smoke", seeds=1, workers=0, progress=False, reward=shaky, eval_size=0, **shape)


@pytest.mark.parametrize(
    ("give", "told"),
    [
        (math.nan, r"gave nan for the completion '.*'\. Give None for a completion that cannot be scored"),
        (math.inf, r"gave inf"),
        (-math.inf, r"gave -inf"),
        (1e38, r"gave 1e\+38 .*too large for 32-bit arithmetic"),
        (torch.tensor(math.nan), r"gave nan"),
        ("1", r"gave '1' \(str\)"),
        ([1], r"gave \[1\] \(list\)"),
        (10**400, r"gave 1000"),
        (torch.zeros(2), r"gave tensor\(\[0\., 0\.\]\) \(Tensor\)"),
    ],
    ids=["nan", "inf", "-inf", "too large", "nan tensor", "text", "list", "huge int", "two numbers"],
)
def test_a_reward_that_is_no_finite_number_names_its_function(build: Build, give: Any, told: str) -> None:
    def shaky(completions: Sequence[Any], **columns: Any) -> Any:
        return [0.5] * (len(completions) - 1) + [give]

    with pytest.raises(ValueError, match=rf"Reward function 'shaky' {told}"):
        _train(build, reward=[length_reward, shaky])


@pytest.mark.parametrize(
    ("give", "told"),
    [
        (lambda n: [1.0] * (n - 1), "gave 31 rewards for 32 completions"),
        (lambda n: "1" * n, "gave str '1111"),
        (lambda n: 1.0, "gave float 1.0"),
        (lambda n: None, "gave NoneType None"),
        (lambda n: {i: 1.0 for i in range(n)}, "gave dict {0: 1.0"),
        (lambda n: set(range(n)), "gave set {0, 1"),
        (lambda n: bytes(n), "gave bytes b'"),
        (lambda n: (1.0 for _ in range(n)), "gave generator <gen"),
        (lambda n: ["1"] * n, r"gave '1' \(str\) for the completion"),
        (lambda n: torch.ones(n, 1), r"gave \[1\.0\] \(list\) for the completion"),
        (lambda n: torch.ones(1, n), "gave 1 rewards for 32 completions"),
        (lambda n: torch.tensor(1.0), r"gave Tensor tensor\(1\.\)"),
    ],
    ids=["short", "text", "number", "None", "dict", "set", "bytes", "generator", "texts", "column", "row", "scalar"],
)
def test_rewards_of_the_wrong_form_name_their_function(build: Build, give: Any, told: str) -> None:
    def shaky(completions: Sequence[Any], **columns: Any) -> Any:
        return give(len(completions))

    with pytest.raises(ValueError, match=f"Reward function 'shaky' {told}"):
        _train(build, reward=shaky)


def test_arrays_and_awaited_functions_are_rewards_too(build: Build) -> None:
    import numpy as np

    def as_array(completions: Sequence[Any], **columns: Any) -> Any:
        return np.array(length_reward(completions))

    async def awaited(completions: Sequence[Any], **columns: Any) -> Any:
        return torch.tensor(length_reward(completions))

    plain = history(_train(build, reward=[length_reward] * 2), "loss", "grad_norm", "reward")
    assert history(_train(build, reward=[as_array, awaited]), "loss", "grad_norm", "reward") == plain

    async def late(completions: Sequence[Any], **columns: Any) -> Any:
        return [math.nan] * len(completions)

    with pytest.raises(ValueError, match="Reward function 'late' gave nan"):
        _train(build, reward=late)


def test_nothing_scorable_is_said(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    trainer = _train(build, reward=lambda completions, **columns: [None] * len(completions))
    assert "No rollout of step 1 could be scored" in caplog.text
    assert history(trainer, "loss", "grad_norm", "frac_reward_unscorable") == [(0, 0, 1)]

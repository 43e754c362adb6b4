"""Reward functions that break in the course of a run. Rewards of a wrong form from the start: `test_guards.py`."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

import rlkit

SMALL: dict[str, Any] = {"prompts_per_step": 2, "num_generations": 2, "train_size": 16, "max_steps": 4}
SAVING = {"save_strategy": "steps", "save_steps": 1}


class Breaks:
    """Lengths as rewards, until a call that raises or gives something else."""

    def __init__(self, at: int = 0, give: Any = None) -> None:
        self.calls, self.at, self.give = 0, at, give

    @property
    def __name__(self) -> str:
        return "breaks"

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        self.calls += 1
        if self.calls != self.at:
            return [float(len(text)) for text in completions]
        if self.give is None:
            raise RuntimeError("the judge is away")
        return self.give(completions)


def trained(reward: Breaks, out: Path, resume: bool = False) -> list[tuple[float, float]]:
    trainer = rlkit.trainer("grpo", preset="smoke", reward=reward, output_dir=str(out), **SMALL, **SAVING)
    trainer.train(resume_from_checkpoint=resume)
    return [(line["grad_norm"], line["reward"]) for line in trainer.state.log_history if "grad_norm" in line]


def test_one_that_raises_on_its_third_call_is_named_and_the_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    wanted = trained(Breaks(), tmp_path / "whole")
    with pytest.raises(RuntimeError, match="the judge is away") as caught:
        trained(Breaks(at=3), tmp_path / "broken")
    assert "raised by reward function 'breaks'" in "".join(traceback.format_exception(caught.value))
    assert sorted(path.name for path in (tmp_path / "broken").glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]
    assert trained(Breaks(), tmp_path / "broken", resume=True) == wanted


@pytest.mark.parametrize(
    ("give", "told"),
    [
        pytest.param(lambda c: [1.0] * (len(c) - 1), "3 rewards for 4 completions", id="short list"),
        pytest.param(lambda c: dict.fromkeys(range(len(c)), 1.0), "gave dict", id="dict"),
        pytest.param(lambda c: {1.0, 2.0, 3.0, 4.0}, "gave set", id="set"),
        pytest.param(lambda c: torch.ones(len(c), 1), r"gave \[1.0\] \(list\)", id="tensor of wrong shape"),
        pytest.param(lambda c: torch.ones(()), "gave float 1.0; a list with one number", id="tensor without shape"),
        pytest.param(lambda c: ["good"] * len(c), r"gave 'good' \(str\)", id="strings"),
        pytest.param(lambda c: [float("nan")] * len(c), "gave nan", id="NaN"),
    ],
)
def test_a_wrong_form_in_mid_run_is_named_and_what_was_trained_is_kept(give: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError), match=told) as caught:
        trained(Breaks(at=3, give=give), tmp_path)
    assert "'breaks'" in str(caught.value)
    assert (tmp_path / "checkpoint-2" / "model.safetensors").is_file()


def test_none_for_all_in_mid_run_trains_on_and_is_counted(tmp_path: Path) -> None:
    found = trained(Breaks(at=3, give=lambda c: [None] * len(c)), tmp_path)
    assert len(found) == 4 and found[2][0] == 0.0

"""`rlkit train`: what it leaves, going on after a stop, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from rlkit import script
from rlkit.cli import app
from rlkit.models import load_model
from rlkit.runs.keys import Run

FAST = {"prompts_per_step": 2, "num_generations": 4, "max_steps": 4, "train_size": 32, "eval_size": 4, "eval_every": 2}


class Stopped(Exception):
    pass


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break a run off when the checkpoint of a step has been written."""
    kept = script.KeepEvaluation.on_save

    def on_save(self: Any, args: Any, state: Any, control: Any, **about: Any) -> None:
        kept(self, args, state, control, **about)
        if state.global_step == step:
            raise Stopped

    monkeypatch.setattr(script.KeepEvaluation, "on_save", on_save)


def test_a_run_that_was_stopped_goes_on_to_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("mc_grpo", "tiny", 3, overrides={**FAST, "save_steps": 1, "lora_r": 2})
    script.train_script(run, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_at(3, patch)
        with pytest.raises(Stopped):
            script.train_script(run, tmp_path / "parts")
    assert not (tmp_path / "parts" / "model").exists()
    assert script.last_checkpoint(tmp_path / "parts" / "checkpoints").name == "checkpoint-3"
    script.train_script(run, tmp_path / "parts")
    names = ("metrics.csv", "model/adapter_model.safetensors", "model/README.md")
    for name in names:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert not list((tmp_path / "whole" / "model").glob("*.bin"))


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    script._claim(Run("grpo", "tiny", 0, overrides={"max_steps": 4}), tmp_path, main=True)
    with pytest.raises(ValueError, match=r"holds another run: max_steps 4, not 5, method 'grpo', not 'mc_grpo'"):
        script._claim(Run("mc_grpo", "tiny", 0, overrides={"max_steps": 5}), tmp_path, main=True)


def test_the_command_distils_and_leaves_a_model_that_loads(tmp_path: Path) -> None:
    values = [f"{name}={value}" for name, value in FAST.items() if name != "num_generations"]
    given = [part for value in values for part in ("-p", value)]
    done = CliRunner().invoke(app, ["train", "tip", "--task", "planted", "--out", str(tmp_path), *given])
    assert done.exit_code == 0, done.output
    assert "4 steps" in done.output
    trained, _ = load_model(tmp_path / "model")
    before, _ = load_model("planted_student")
    assert not torch.equal(next(trained.parameters()), next(before.parameters()))
    about = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert (
        "planted_student" in about and "| retention | `0.5` | method |" in about and "max_steps | `4` | call" in about
    )
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["max_steps"] == 4


def test_an_unknown_setting_is_named_with_near_ones(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train", "grpo", "-p", "max_step=3", "--out", str(tmp_path / "x")])
    assert done.exit_code == 1 and "max_steps" in done.output

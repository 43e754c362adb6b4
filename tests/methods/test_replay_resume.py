"""Save, kill, resume: the same buffer, the same rows, the same metrics as a run that was left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import rlkit
from rlkit.trainers import checkpoint
from tests.tiny import history

SMALL = {"prompts_per_step": 4, "num_generations": 4, "train_size": 8, "max_steps": 8, "learning_rate": 1e-3}
METHODS: dict[str, dict[str, Any]] = {
    "replay_uniform": {"buffer": 50, "repeat": 3},
    "replay_positive": {"buffer": 50, "delta": 0.4, "max_age": 3, "reward": "exact"},
    "rlep": {"first_run": 5, "at_least": 1, "right_at": 0.2},
    "exgrpo": {"start_at": 0.0, "right_at": 0.2, "retire": True},
    "repo": {"at_least": 4, "per_prompt": 6},
    "soup": {"per_prompt": 4},
}
LOGS = ("loss", "grad_norm", "reward", "generated_tokens", "trained_tokens", "replay/age", "replay/stored")


def build(name: str, folder: Path, **more: Any) -> Any:
    from transformers.trainer_callback import PrinterCallback

    settings = {"reward": "graded", **SMALL, **METHODS[name], **more}
    made = rlkit.trainer(name, preset="smoke", output_dir=str(folder), **settings)
    made.remove_callback(PrinterCallback)
    return made


def packed(trainer: Any) -> Any:
    """The memory as it would be saved: JSON, and tensors by name."""
    tensors: dict[str, torch.Tensor] = {}
    return checkpoint.pack(trainer.method.state[0].state_dict(), tensors), tensors


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_ends_with_the_same_buffer_and_metrics(name, tmp_path, one_thread):
    whole = build(name, tmp_path, save_strategy="steps", save_steps=4)
    whole.train()
    resumed = build(name, tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert history(resumed, *LOGS)[4:] == history(whole, *LOGS)[4:]
    assert any(age for *_, age, _ in history(whole, *LOGS)), "nothing was replayed"
    (text, tensors), (expected, others) = packed(resumed), packed(whole)
    assert text == expected and tensors.keys() == others.keys()
    assert all(torch.equal(tensors[key], others[key]) for key in others)
    pairs = zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from tests.methods.test_replay_resume import build

class Kill:
    def on_step_end(self, args, state, control, **about):
        if state.global_step == 6:
            os.kill(os.getpid(), signal.SIGKILL)

from rlkit.trainers.watch import as_callback
trainer = build("replay_uniform", Path(sys.argv[1]), save_strategy="steps", save_steps=4)
trainer.add_callback(as_callback(Kill()))
trainer.train()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="processes are killed otherwise on Windows")
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, one_thread):
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    given = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    ended = subprocess.run(given, cwd=root, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]
    whole = build("replay_uniform", tmp_path / "whole")
    whole.train()
    resumed = build("replay_uniform", tmp_path / "killed")
    resumed.train(resume_from_checkpoint=True)
    assert history(resumed, *LOGS)[4:] == history(whole, *LOGS)[4:]
    (text, tensors), (expected, others) = packed(resumed), packed(whole)
    assert text == expected and all(torch.equal(tensors[key], others[key]) for key in others)

"""Every hook with memory: saved in the middle, over the end of an epoch, and resumed to the same end."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import rlkit
from tests.tiny import history

SMALL = {"prompts_per_step": 4, "num_generations": 4, "train_size": 8, "max_steps": 6, "learning_rate": 1e-3}
MEMORIES = {
    "vade": {},
    "olr": {"start": 1, "slope": 0.0},
    "replay_uniform": {"buffer": 40},
    "stale": {"updates": 2},
    "vcpo": {"prompts_per_step": 2, "steps_per_generation": 2, "max_steps": 8},
    "mc_grpo+replay_uniform": {"buffer": 40},
    "m2po+stale": {"updates": 2},
}


@pytest.mark.parametrize("name", MEMORIES)
def test_a_resumed_run_ends_as_if_nothing_had_happened(name, tmp_path, one_thread):
    settings = {**SMALL, **MEMORIES[name]}
    half = settings["max_steps"] // 2 // 2 * 2

    def build(**more: Any) -> Any:
        from transformers.trainer_callback import PrinterCallback

        reward = None if name == "olr" else "graded"
        made = rlkit.trainer(name, preset="smoke", reward=reward, output_dir=str(tmp_path), **settings, **more)
        made.remove_callback(PrinterCallback)
        return made

    whole = build(save_strategy="steps", save_steps=half)
    whole.train()
    resumed = build()
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{half}"))
    logs = ("loss", "grad_norm", "reward", "generated_tokens")
    assert history(resumed, *logs)[half:] == history(whole, *logs)[half:]
    pairs = zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)

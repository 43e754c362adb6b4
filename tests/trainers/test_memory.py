"""Hooks with memory: a run that is saved in the middle and resumed is the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rlkit.trainers import checkpoint
from tests.tiny import Build, history
from tests.trainers.memory import everywhere

SEEN = ("loss", "grad_norm", "reward", "num_tokens", "generated_tokens", "trained_tokens", "frac_reward_zero_std")
CASES = [
    (3, {}),
    (3, {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}),
    (4, {"per_device_train_batch_size": 16, "steps_per_generation": 2}),
]


@pytest.mark.parametrize(("save", "config"), CASES, ids=["whole", "accumulated", "stale"])
@pytest.mark.parametrize("pooled", [False, True], ids=["by micro-batch", "pooled"])
def test_memory_in_every_seam_resumes(
    build: Build, tmp_path: Path, save: int, config: dict[str, Any], pooled: bool
) -> None:
    options = {"reward": None, "max_steps": 6, "save_strategy": "steps", "save_steps": save, **config}
    first, second = (build(method=everywhere(pooled), **options) for _ in range(2))
    first.train()
    second.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{save}"))
    assert history(first, *SEEN)[save:] == history(second, *SEEN)[save:]
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    one, two = first.method.state[0], second.method.state[0]
    assert one.calls == two.calls and one.rates == two.rates and torch.equal(one.entropy, two.entropy)
    assert min(one.calls.values()) >= 3 and len(one.calls) == 7


def test_memory_of_other_processes_is_refused(build: Build, tmp_path: Path) -> None:
    options = {"reward": None, "max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    build(method=everywhere(), **options).train()
    written, _ = checkpoint.files(tmp_path / "checkpoint-1", 0)
    state = json.loads(written.read_text(encoding="utf-8"))
    state["dict"] = [[k, 2 if k == "ranks" else v] for k, v in state["dict"]]
    written.write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ValueError, match=r"holds the memory of 2 processes .* and there are 1"):
        build(method=everywhere(), **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))

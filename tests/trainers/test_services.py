"""Trackers and vLLM: what is asked of them, and what is said where they are missing."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import rlkit
from rlkit.trainers import engine, tracking


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No keys, no home, and no tracker installed."""
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return monkeypatch


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_missing_tracker_is_an_error_with_its_pip_line(clean: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"pip install {name}"):
        rlkit.trainer(preset="smoke", report_to=name)


def test_an_unknown_tracker_is_refused_and_none_asks_for_nothing(clean: Any) -> None:
    for value in ("all", "mlflow", ["tensorboard", "comet_ml"]):
        clean.setattr(importlib.util, "find_spec", lambda name: object())
        with pytest.raises(ValueError, match="Choose from tensorboard, trackio, wandb or none"):
            tracking.check_tracking(value)
    clean.setattr(importlib.util, "find_spec", lambda name: None)
    for value in (None, "none", [], ["none"]):
        tracking.check_tracking(value)


def test_wandb_without_a_key_runs_offline_and_with_one_as_it_is(
    clean: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clean.setattr(importlib.util, "find_spec", lambda name: object())
    clean.setenv("WANDB_MODE", "")
    tracking.check_tracking("wandb")
    assert os.environ["WANDB_MODE"] == "offline" and "runs offline" in caplog.text
    clean.setenv("WANDB_MODE", "")
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password x", encoding="utf-8")
    (tmp_path / ".netrc").chmod(0o600)
    tracking.check_tracking("wandb")
    clean.setenv("WANDB_API_KEY", "x")
    tracking.check_tracking("wandb")
    assert os.environ["WANDB_MODE"] == ""


def test_vllm_has_to_be_installed(clean: Any) -> None:
    with pytest.raises(ValueError, match=r"pip install 'trl\[vllm\]'"):
        rlkit.trainer(preset="smoke", use_vllm=True)


def test_the_engine_draws_from_the_runs_seed_the_step_and_its_group() -> None:
    """Two processes of a tensor-parallel group have one seed, since they sample one rollout together."""
    seeds = [engine.engine_seed(seed, step, process, 2) for seed in (0, 1) for step in (0, 5) for process in range(4)]
    assert seeds[0] == seeds[1] == 0 and seeds[2] == seeds[3]
    assert len(set(seeds)) == 8 and all(0 <= seed < 2**31 for seed in seeds)


def test_the_engines_workers_are_seeded_when_training_begins(caplog: pytest.LogCaptureFixture) -> None:
    """What an engine would be called with: vLLM is not here. The call is run as a worker runs it."""

    def collective_rpc(method: Any, timeout: Any = None, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        return [method("worker", *args)]

    def begin(llm: Any, seed: int) -> float:
        holder = SimpleNamespace(llm=llm) if llm else SimpleNamespace()
        trainer = SimpleNamespace(vllm_generation=holder, accelerator=SimpleNamespace(process_index=0))
        args: Any = SimpleNamespace(seed=seed, vllm_tensor_parallel_size=1)
        engine.SeedEngine(trainer).on_train_begin(args, SimpleNamespace(global_step=0), None)  # type: ignore[arg-type]
        return float(torch.rand(1))

    with torch.random.fork_rng():
        llm = SimpleNamespace(collective_rpc=collective_rpc)
        assert begin(llm, 3) == begin(llm, 3) != begin(llm, 4)
        begin(None, 3)
    assert "server draws from its own seed" in caplog.text

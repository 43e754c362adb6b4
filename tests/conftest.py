"""Fixtures for all tests. One torch thread, no network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rlkit.method import Method

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

from tests import tiny


@pytest.fixture
def one_thread() -> None:
    """Set torch to one thread: at this size a second one only waits."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def distil(tmp_path: Path, one_thread: Any) -> Any:
    """Build a trainer that distils: `distil(method=..., **DistillationConfig options)`; `stock=True`: TRL's own."""

    def make(
        *,
        method: Any = "opd",
        stock: bool = False,
        model: Any = None,
        teacher: Any = "another",
        data: Any = None,
        named: Any = None,
        **config: Any,
    ) -> Any:
        from transformers.trainer_callback import PrinterCallback
        from trl import DistillationTrainer

        from rlkit.trainers.distill import DistillTrainer

        taught = tiny.tiny_model(seed=7) if isinstance(teacher, str) else teacher
        own = (
            {} if stock else {"method": method, "teacher_tokenizer": None if taught is None else tiny.tiny_tokenizer()}
        )
        made = (DistillationTrainer if stock else DistillTrainer)(
            **{
                "model": tiny.tiny_model() if model is None else model,
                "teacher_model": taught,
                "args": tiny.distill_config(tmp_path, **config),
                "train_dataset": tiny.tiny_data() if data is None else data,
                "processing_class": tiny.tiny_tokenizer(),
                **own,
                **(named or {}),
            }
        )
        made.remove_callback(PrinterCallback)
        return made

    return make


@pytest.fixture
def build(tmp_path: Path, one_thread: Any) -> Any:
    """Build a trainer: `build(method=..., reward=..., **GRPOConfig options)`; `stock=True` gives TRL's own."""

    def make(
        *,
        method: Method = "grpo",
        reward: Any = tiny.length_reward,
        stock: bool = False,
        model: Any = None,
        data: Any = None,
        named: Any = None,
        **config: Any,
    ) -> Any:
        from transformers.trainer_callback import PrinterCallback
        from trl import GRPOTrainer

        from rlkit.trainers.rlvr import RLVRTrainer

        own = {} if stock else {"method": method}
        made = (GRPOTrainer if stock else RLVRTrainer)(
            **{
                "model": tiny.tiny_model() if model is None else model,
                "reward_funcs": reward,
                "args": tiny.tiny_config(tmp_path, **config),
                "train_dataset": tiny.tiny_data() if data is None else data,
                "processing_class": tiny.tiny_tokenizer(),
                **own,
                **(named or {}),
            }
        )
        made.remove_callback(PrinterCallback)
        return made

    return make

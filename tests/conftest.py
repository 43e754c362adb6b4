"""Fixtures for all tests. One torch thread, no network."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

from tests import tiny


@pytest.fixture
def one_thread():
    """Set torch to one thread: at this size a second one only waits."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def build(tmp_path, one_thread):
    """Build a trainer: `build(method=..., reward=..., **GRPOConfig options)`; `stock=True` gives TRL's own."""

    def make(*, method="grpo", reward=tiny.length_reward, stock=False, model=None, data=None, named=None, **config):
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

"""vLLM draws the rollouts (`use_vllm=True`): it has to be there, and it has to draw from the run's seed.

TRL gives its engine the number of the process as seed, so that every run of one machine would draw from the same
stream. The engine lives in the training process (`vllm_mode="colocate"`); its workers are seeded through vLLM's
public `LLM.collective_rpc` when training begins. A server (`vllm_mode="server"`) has a seed of its own, which nobody
here can set.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

logger = logging.getLogger(__name__)

STRIDE = 1_000_003
"""Between the seeds of two groups of processes: far from what anybody counts seeds up by."""


def check_engine(settings: Mapping[str, Any]) -> None:
    """Raise ValueError where vLLM is asked for and is not installed, before a model is loaded."""
    if not settings.get("use_vllm") or importlib.util.find_spec("vllm") is not None:
        return
    raise ValueError(
        "use_vllm=True needs vLLM, which is not installed: `pip install 'trl[vllm]'` on Linux with an NVIDIA GPU, or "
        "leave use_vllm out, and transformers draws the rollouts."
    )


def engine_seed(seed: int, step: int, process: int, parallel: int) -> int:
    """The seed of an engine: equal in a tensor-parallel group, whose processes sample one rollout together.

    Args:
        seed: the run's.
        step: optimiser steps done: 0, or where the run goes on.
        process: the process's number.
        parallel: processes that share one engine (`vllm_tensor_parallel_size`).

    """
    return (seed + STRIDE * (process // parallel) + STRIDE**2 * step) % 2**31


def seed_worker(worker: Any, seed: int) -> None:
    """What each worker of the engine does: its samplers draw from torch's generators."""
    import torch

    torch.manual_seed(seed)


class SeedEngine(TrainerCallback):
    """Seeds the engine when training begins; on a resume the step is part of the seed."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **about: Any
    ) -> None:
        """Seed the workers, or say why not."""
        engine = getattr(self.trainer.vllm_generation, "llm", None)
        if engine is None:
            logger.warning("The vLLM server draws from its own seed: runs with other seeds differ in prompts only.")
            return
        number = self.trainer.accelerator.process_index
        seed = engine_seed(args.seed, state.global_step, number, args.vllm_tensor_parallel_size)
        engine.collective_rpc(seed_worker, args=(seed,))

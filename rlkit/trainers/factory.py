"""`rlkit.trainer(...)`: a real TRL trainer for a method, a preset and a seed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlkit.method import Method, get_method
from rlkit.presets import get_preset
from rlkit.settings import Settings, resolve

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel

    from rlkit.tasks.base import Task
    from rlkit.trainers.rlvr import RLVRTrainer


def trainer(
    method: str | Method = "grpo",
    *,
    preset: str = "tiny",
    seed: int = 0,
    model: str | PreTrainedModel | None = None,
    task: str | Task | Dataset | None = None,
    reward: Any = None,
    skip_zero_advantage: bool = True,
    on_long_prompt: str = "refuse",
    record_steps: Sequence[int] = (),
    **overrides: Any,
) -> RLVRTrainer:
    """Build a trainer; `.train()` works, `.settings` prints every value with its origin.

    Args:
        method: a name from `rlkit.catalog()` or a `Method` of one's own.
        preset: the dial that sets model, task and budget (`rlkit.presets`).
        seed: seeds sampling, prompt order and adapter init; arms with equal seeds see the same prompts.
        model: a tiny base by name, a hub id, a folder or a model; default: the preset's.
        task: a task by name, a `Task`, or a `datasets.Dataset` with the columns prompt and gold; default: the preset's.
        reward: the name of one of the task's rewards, a function in TRL's signature, or a reward of `rlkit.rewards`;
            default: the method's, else the task's.
        skip_zero_advantage: as for `RLVRTrainer`.
        on_long_prompt: as for `RLVRTrainer`.
        record_steps: as for `RLVRTrainer`.
        overrides: TRL options, the method's options, and `prompts_per_step`, `train_size`, `train_seed` (the same
            training rows for every seed), `eval_every`, `eval_size`, `validation_size`.

    Raises:
        ValueError: an unknown name (near ones are listed), a wrong type, a batch that does not divide.

    """
    import torch
    from trl import GRPOConfig

    from rlkit import paths
    from rlkit.models import load_model
    from rlkit.prompts import for_model
    from rlkit.rewards import resolve_reward
    from rlkit.tasks.base import get_task
    from rlkit.trainers import checks
    from rlkit.trainers.rlvr import RLVRTrainer

    chosen, dial = get_method(method), get_preset(preset)
    the_task = get_task(dial.task if task is None else task)
    settings = resolve(chosen, dial, the_task.config, overrides)
    checks.check_batch(_generation_batch(settings), settings["num_generations"])
    if dial.threads:
        torch.set_num_threads(dial.threads)
    policy, tokenizer = load_model(dial.model if model is None else model)
    spec = next((r for r in (reward, chosen.reward) if r is not None), the_task.default_reward)
    config = {"output_dir": str(paths.build() / "trainer"), **settings.config}
    drawn_from = seed if settings.get("train_seed") is None else settings["train_seed"]
    built = RLVRTrainer(
        model=policy,
        reward_funcs=resolve_reward(spec, the_task, seed),
        args=GRPOConfig(seed=seed, data_seed=seed, **config),
        train_dataset=for_model(the_task.dataset("train", settings["train_size"], seed=drawn_from), tokenizer),
        processing_class=tokenizer,
        method=chosen.with_options(**settings.options),
        skip_zero_advantage=skip_zero_advantage,
        on_long_prompt=on_long_prompt,
        record_steps=record_steps,
        apply_config=False,  # the settings hold what the method wants already
    )
    built.settings, built.task = settings, the_task
    call = {"preset": preset, "seed": seed, "task": task, "reward": reward, "on_long_prompt": on_long_prompt}
    built.call = {**call, "skip_zero_advantage": skip_zero_advantage, **overrides}
    return built


def _generation_batch(settings: Settings) -> int:
    """Completions that are drawn at once, on all processes."""
    if settings.get("generation_batch_size"):
        return int(settings["generation_batch_size"])
    chunks = settings.get("steps_per_generation") or settings.get("gradient_accumulation_steps") or 1
    return int(settings["per_device_train_batch_size"] * chunks * int(os.environ.get("WORLD_SIZE", "1")))

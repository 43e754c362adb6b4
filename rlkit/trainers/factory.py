"""`rlkit.trainer(...)`: a real TRL trainer for a method, a preset and a seed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlkit.method import Method, get_method
from rlkit.presets import Preset, get_preset
from rlkit.settings import Settings, resolve

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel

    from rlkit.tasks.base import Task
    from rlkit.trainers.distill import DistillTrainer
    from rlkit.trainers.rlvr import RLVRTrainer

DISTILL = "rlkit.trainers.build_distill"
"""By name, so that the files of one family are no part of the other's runs."""


def trainer(
    method: str | Method = "grpo",
    *,
    preset: str = "tiny",
    seed: int = 0,
    model: str | PreTrainedModel | None = None,
    task: str | Task | Dataset | None = None,
    reward: Any = None,
    teacher: Any = None,
    skip_zero_advantage: bool = True,
    on_long_prompt: str = "refuse",
    record_steps: Sequence[int] = (),
    **overrides: Any,
) -> RLVRTrainer | DistillTrainer:
    """Build a trainer; `.train()` works, `.settings` prints every value with its origin.

    Args:
        method: a name from `rlkit.catalog()` or a `Method` of one's own.
        preset: the dial that sets model, task and budget (`rlkit.presets`).
        seed: seeds sampling, prompt order and adapter init; arms with equal seeds see the same prompts.
        model: a tiny base by name, a hub id, a folder or a model; default: the task's student, else the preset's.
        task: a task by name, a `Task`, or a `datasets.Dataset` with the columns prompt and gold; default: the preset's.
        reward: the name of one of the task's rewards, a function in TRL's signature, or a reward of `rlkit.rewards`;
            default: the method's, else the task's. Distillation has none.
        teacher: for distillation, like `model`; default: the task's teacher.
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
    from rlkit.trainers.engine import check_engine
    from rlkit.trainers.rlvr import RLVRTrainer
    from rlkit.trainers.tracking import check_tracking

    chosen, dial = get_method(method), get_preset(preset)
    the_task = get_task(dial.task if task is None else task)
    settings = resolve(chosen, dial, the_task.config, overrides)
    check_device(settings, dial)
    check_engine(settings)
    check_tracking(settings.get("report_to"))
    model = student_of(the_task, dial) if model is None else model
    if dial.threads:
        torch.set_num_threads(dial.threads)
    if chosen.trainer == "distill":
        if reward is not None:
            raise ValueError(f"Method {chosen.name!r} distils: it has no use for reward=.")
        call = {"preset": preset, "seed": seed, "task": task, "on_long_prompt": on_long_prompt, **overrides}
        named = {"on_long_prompt": on_long_prompt, "record_steps": record_steps}
        return _distill(chosen, settings, the_task, call, model=model, teacher=teacher, seed=seed, **named)
    if teacher is not None:
        raise ValueError(f"Method {chosen.name!r} does not distil: it has no use for teacher=.")
    checks.check_batch(_generation_batch(settings), settings["num_generations"])
    policy, tokenizer = load_model(model, quantization=settings.get("quantization", "none"))
    spec = next((r for r in (reward, chosen.reward) if r is not None), the_task.default_reward)
    config = {"output_dir": str(paths.build() / "trainer"), **settings.config}
    drawn_from = seed if settings.get("train_seed") is None else settings["train_seed"]
    built = RLVRTrainer(
        model=policy,
        reward_funcs=resolve_reward(spec, the_task, seed),
        args=GRPOConfig(seed=seed, data_seed=seed, **config),
        train_dataset=for_model(the_task.dataset("train", settings["train_size"], seed=drawn_from), tokenizer),
        processing_class=tokenizer,
        peft_config=adapters_for(settings, seed),
        method=chosen.with_options(**settings.options),
        skip_zero_advantage=skip_zero_advantage,
        on_long_prompt=on_long_prompt,
        record_steps=record_steps,
        apply_config=False,  # the settings hold what the method wants already
    )
    _finish(built, settings, the_task)
    call = {"preset": preset, "seed": seed, "task": task, "reward": reward, "on_long_prompt": on_long_prompt}
    built.call = {**call, "skip_zero_advantage": skip_zero_advantage, **overrides}
    return built


def _distill(
    method: Method, settings: Settings, task: Task, call: dict[str, Any], *, teacher: Any, **named: Any
) -> DistillTrainer:
    """The other family: no rewards, and a teacher."""
    taught = teacher_of(task) if teacher is None and method.teacher == "model" else teacher
    built = importlib.import_module(DISTILL).build(method, settings, task, teacher=taught, **named)
    _finish(built, settings, task)
    built.call = call
    return built


def _finish(built: Any, settings: Settings, task: Task) -> None:
    """What a trainer of both families gets when it has been built."""
    from rlkit.trainers.engine import SeedEngine

    built.settings, built.task = settings, task
    if settings.get("use_vllm"):
        built.add_callback(SeedEngine(built))


def adapters_for(settings: Settings, seed: int) -> Any:
    """PEFT's config or None. Seeds first: adapters are drawn before TRL seeds, and two seeds shall differ."""
    from transformers import set_seed

    from rlkit.models.adapters import lora_config

    found = lora_config(settings)
    if found is not None:
        set_seed(seed)
    return found


def check_device(settings: Settings, dial: Preset) -> None:
    """Raise ValueError where a preset for a GPU finds none, before anything is downloaded."""
    import torch

    if not dial.gpu or settings.get("use_cpu") or torch.cuda.is_available():
        return
    raise ValueError(
        f"Preset {dial.name!r} needs an NVIDIA GPU, and torch sees none (`rlkit doctor --machine` says more). On a "
        "CPU: preset small, a pretrained model of 135 M parameters, or tiny."
    )


def student_of(task: Task, dial: Preset) -> Any:
    """What is trained where nobody says: the base made for the task, else the preset's."""
    return task.bases.get("student", dial.model)


def teacher_of(task: Task) -> Any:
    """Who teaches where nobody says: the base made for the task, or None."""
    return task.bases.get("teacher")


def _generation_batch(settings: Settings) -> int:
    """Completions that are drawn at once, on all processes."""
    if settings.get("generation_batch_size"):
        return int(settings["generation_batch_size"])
    chunks = settings.get("steps_per_generation") or settings.get("gradient_accumulation_steps") or 1
    return int(settings["per_device_train_batch_size"] * chunks * int(os.environ.get("WORLD_SIZE", "1")))

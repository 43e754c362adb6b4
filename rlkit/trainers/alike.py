"""A trainer like another one, for another method: same policy, data and rewards, so that the two can be compared."""

from __future__ import annotations

import copy
from typing import Any

from rlkit.method import Method
from rlkit.presets import get_preset
from rlkit.settings import resolve

BATCH = (
    *("gradient_accumulation_steps", "steps_per_generation", "generation_batch_size"),
    *("per_device_train_batch_size", "num_generations", "prompts_per_step"),
)
APART = ("preset", "seed", "task", "reward", "on_long_prompt", "skip_zero_advantage")
"""Arguments of `rlkit.trainer` that are no settings."""


def like(trainer: Any, method: Method, prompts: int, group: int) -> Any:
    """A trainer for another method whose step is one micro-batch of `prompts` x `group` rollouts.

    Settings that the first trainer was told hold here too; options that the method does not have are left out.

    Args:
        trainer: from `rlkit.trainer`, or an `RLVRTrainer` or `DistillTrainer` built directly.
        method: the other method.
        prompts: prompts of a step.
        group: rollouts of each, those included that the method adds by itself; 1 in distillation.

    Raises:
        ValueError: the method cannot use groups of this size.

    """
    call = getattr(trainer, "call", None)
    if method.trainer == "distill":
        return _distilling(trainer, call, method, prompts)
    return _direct(trainer, method, prompts, group) if call is None else _called(trainer, call, method, prompts, group)


def _called(trainer: Any, call: dict[str, Any], method: Method, prompts: int, group: int) -> Any:
    from rlkit.trainers.factory import trainer as build

    foreign = set(trainer.method.options) - set(method.options)
    call = {name: value for name, value in call.items() if name not in (*BATCH, *foreign)}
    told = {name: value for name, value in call.items() if name not in APART}
    sizes = {"prompts_per_step": prompts, "num_generations": group}
    added = (
        resolve(method, get_preset(call["preset"]), trainer.task.config, {**told, **sizes})["num_generations"] - group
    )
    return build(method, model=trainer.model, **{**call, **sizes, "num_generations": group - added})


def _distilling(trainer: Any, call: dict[str, Any] | None, method: Method, prompts: int) -> Any:
    """The same student; the same teacher, where the method has one of its own."""
    teacher = trainer.teacher_model if method.teacher == "model" else None
    if call is None:
        args = copy.copy(trainer.args)
        args.per_device_train_batch_size, args.gradient_accumulation_steps = prompts, 1
        same = {"model": trainer.model, "peft_config": None, "train_dataset": trainer.train_dataset, "args": args}
        same |= {"teacher_model": teacher, "teacher_tokenizer": trainer.teacher_tokenizer}
        return type(trainer)(**{**trainer.arguments, **same}, method=method)
    from rlkit.trainers.factory import trainer as build

    foreign = set(trainer.method.options) - set(method.options)
    told = {name: value for name, value in call.items() if name not in (*BATCH, *foreign)}
    return build(method, model=trainer.model, teacher=teacher, prompts_per_step=prompts, **told)


def _direct(trainer: Any, method: Method, prompts: int, group: int) -> Any:
    given = trainer.arguments
    args = copy.copy(given.get("args") or trainer.args)
    sizes = {"per_device_train_batch_size": prompts * group, "generation_batch_size": prompts * group}
    for name, value in {
        **sizes,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 1,
        "num_generations": group,
    }.items():
        setattr(args, name, value)
    same = {"model": trainer.model, "peft_config": None, "train_dataset": trainer.train_dataset}
    return type(trainer)(**{**given, **same, "args": args}, method=method)

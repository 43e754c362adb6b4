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

    TRL settings that the first trainer was told hold here too; the method's options are its own.

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

    call = _without_options(trainer, call, method)
    told = {name: value for name, value in call.items() if name not in APART}
    sizes = {"prompts_per_step": prompts, "num_generations": group}
    settings = resolve(method, get_preset(call["preset"]), trainer.task.config, {**told, **sizes})
    _check_reference(trainer, settings.get("beta"))
    added = settings["num_generations"] - group
    return build(method, model=trainer.model, **{**call, **sizes, "num_generations": group - added})


def _without_options(trainer: Any, call: dict[str, Any], method: Method) -> dict[str, Any]:
    """What `trainer` was told, without what is about batches or is an option of one of the two methods."""
    apart = {*BATCH, *trainer.method.options, *method.options}
    return {name: value for name, value in call.items() if name not in apart}


def _check_reference(trainer: Any, beta: float | None) -> None:
    """Refuse a KL term on adapters: TRL would add a copy of them to the policy, as the reference of all trainers."""
    if beta and hasattr(trainer.model, "peft_config"):
        raise ValueError(
            "compare builds a second trainer on the same policy, and with adapters and beta > 0 TRL would change the "
            "policy's reference. Compare with beta=0, or without an adapter."
        )


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

    told = _without_options(trainer, call, method)
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
    _check_reference(trainer, args.beta)
    same = {"model": trainer.model, "peft_config": None, "train_dataset": trainer.train_dataset}
    return type(trainer)(**{**given, **same, "args": args}, method=method)

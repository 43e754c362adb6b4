"""Guards of `DistillTrainer`: what would distil wrongly or not at all is an error that names the cause and the fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets import Dataset
from torch import Tensor
from trl import DistillationConfig

from rlkit.method import Method
from rlkit.trainers.checks import check_tokenizer, refuse_remote_code


def check_arguments(method: Method, arguments: Mapping[str, Any], teacher: Any) -> None:
    """Raise ValueError for a teacher that is missing, not wanted, or the student itself."""
    refuse_remote_code(arguments["args"])
    check_tokenizer(arguments.get("processing_class"))
    if method.teacher == "model" and teacher is None:
        raise ValueError(
            f"Method {method.name!r} needs a teacher: pass teacher_model= (to rlkit.trainer and arms: teacher=), a "
            "model, a folder, a hub id or the name of a base."
        )
    if method.teacher != "model" and teacher is not None:
        what = "has no teacher" if method.teacher == "none" else "is its own teacher"
        raise ValueError(f"Method {method.name!r} {what}: teacher_model= (teacher=) would not be used. Leave it out.")
    if teacher is not None and teacher is arguments.get("model"):
        raise ValueError(
            "Teacher and student are the same object, so that evaluating one would switch the other. Load the model "
            "twice, or use a method that is its own teacher ('opsd')."
        )


def check_model(trainer: Any) -> None:
    """Raise ValueError for models and settings that the seams do not fit."""
    if trainer._is_vlm:
        raise ValueError("DistillTrainer takes text models: its seams work on tokens, which leaves images out.")
    plugin = getattr(trainer.args, "deepspeed_plugin", None)
    if plugin is not None and plugin.zero_stage == 3:
        raise ValueError(
            "DeepSpeed ZeRO stage 3 shards the output layer, which the loss reads row by row. Use stage 2."
        )


def check_dataset_size(dataset: Any, args: DistillationConfig) -> None:
    """Raise ValueError where an epoch would have no whole batch."""
    need = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    if isinstance(dataset, Dataset) and len(dataset) < need:
        raise ValueError(
            f"The train set has {len(dataset)} prompts and one step takes {need}: TRL would train 0 steps without a "
            f"word. Use at least {need} prompts, or smaller batches."
        )


def check_divergence(found: Any, student: Tensor, method: Method) -> Tensor:
    """What a `divergence` hook gave: (R,) finite numbers that depend on the student's logits.

    Raises:
        ValueError: naming the method, the seam and the expected shape.

    """
    start, shape = f"Method {method.name!r}, seam 'divergence'", (len(student),)
    if not isinstance(found, Tensor) or tuple(found.shape) != shape:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"{start}: expected a loss a row, of shape (R,) = {shape}, got {got}.")
    if not found.requires_grad:
        raise ValueError(f"{start}: the loss does not depend on the student's logits, so it has no gradient.")
    if not found.isfinite().all():
        raise ValueError(f"{start}: {int((~found.isfinite()).sum())} of {len(found)} values are NaN or infinite.")
    return found

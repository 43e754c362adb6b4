"""Out of memory: say what the step needs, part by part, and which smaller setting would fit."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Trainer

SIGNS = ("out of memory", "can't allocate memory", "not enough memory")


class OutOfMemory(RuntimeError):
    """A training step needed more memory than there is; the message has the estimate by part."""


class SaysWhatItNeeds(Trainer):
    """Mixed into the trainers: an error of memory in a step comes with where the memory goes."""

    def training_step(self, *args: Any, **named: Any) -> torch.Tensor:
        """TRL's step."""
        try:
            return super().training_step(*args, **named)
        except (RuntimeError, MemoryError) as error:
            retries = self.args.auto_find_batch_size  # it looks for torch's own error
            if retries or isinstance(error, OutOfMemory) or not is_memory(error):
                raise
            raise OutOfMemory(explained(self, error)) from error


def is_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: of a GPU, or of the machine."""
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or any(sign in str(error).lower() for sign in SIGNS)


def explained(trainer: Any, error: BaseException) -> str:
    """The estimate for this trainer's step, and the next smaller setting."""
    from rlkit.doctor.memory import GB, Load, estimate, smaller
    from rlkit.doctor.shapes import of_config

    said = f"Out of memory in step {trainer.state.global_step + 1}: {str(error).splitlines()[0]}"
    settings = dict(getattr(trainer, "settings", None) or {}) or vars(trainer.args)
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    ranks = {config.r for config in getattr(model, "peft_config", {}).values() if hasattr(config, "r")}
    own = {
        "lora_r": max(ranks, default=0),
        "quantization": "nf4" if getattr(base, "is_loaded_in_4bit", False) else "none",
    }
    load = Load.of({**settings, **own, "per_device_train_batch_size": trainer.args.per_device_train_batch_size})
    teacher = getattr(trainer, "teacher_model", None)
    try:
        shape = of_config(model.config)
        taught = None if teacher is None else of_config(trainer.accelerator.unwrap_model(teacher).config)
    except ValueError:
        return said
    needs = estimate(shape, load, taught)
    limit = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0.8 * needs.peak
    name = str(getattr(model.config, "_name_or_path", ""))
    less = smaller(name, load, limit, taught, shape=shape) or "a smaller model"
    return f"{said}\n{needs.text()}\nNext smaller setting by this estimate: {less} (limit {limit / GB:.1f} GB)."

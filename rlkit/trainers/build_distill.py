"""`rlkit.trainer` for methods that distil: `factory.py` calls this."""

from __future__ import annotations

from typing import Any

from trl import DistillationConfig

from rlkit import paths
from rlkit.method import Method
from rlkit.models import load_model
from rlkit.prompts import for_model
from rlkit.settings import Settings
from rlkit.tasks.base import Task
from rlkit.trainers.distill import DistillTrainer
from rlkit.trainers.factory import adapters_for
from rlkit.trainers.teachers import load_teacher


def build(
    method: Method, settings: Settings, task: Task, *, model: Any, teacher: Any, seed: int, **named: Any
) -> DistillTrainer:
    """A trainer from resolved settings.

    Args:
        method: the method, with the defaults of its options.
        settings: what preset, task, method and call say together.
        task: prompts and how answers are graded.
        model: the student: a base, a folder, a hub id or a model.
        teacher: likewise, or None; a method that needs none gets none.
        seed: seeds sampling and prompt order.
        named: further arguments of `DistillTrainer`.

    """
    quantization = settings.get("quantization", "none")
    student, tokenizer = load_model(model, quantization=quantization)
    args = DistillationConfig(
        seed=seed, data_seed=seed, **{"output_dir": str(paths.build() / "trainer"), **settings.config}
    )
    drawn_from = seed if settings.get("train_seed") is None else settings["train_seed"]
    taught = (None, None) if teacher is None else load_teacher(teacher, args, quantization)
    return DistillTrainer(
        model=student,
        teacher_model=taught[0],
        teacher_tokenizer=taught[1],
        args=args,
        train_dataset=for_model(task.dataset("train", settings["train_size"], seed=drawn_from), tokenizer),
        processing_class=tokenizer,
        peft_config=adapters_for(settings, seed),
        method=method.with_options(**settings.options),
        apply_config=False,  # the settings hold what the method wants already
        **named,
    )

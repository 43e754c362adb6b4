"""The teacher: a model of its own, the student itself, the student as it was at the start, or none.

A teacher and a student have to mean the same by each token id. Sizes of heads alone say nothing of that: models of one
family pad their heads differently, and two tokenizers can have one size.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor
from trl import DistillationTrainer

from rlkit.method import Method

logger = logging.getLogger(__name__)

TEACHER_NAME = "rlkit_teacher.safetensors"
"""In a checkpoint: the weights of a teacher that has been refreshed."""


def load_teacher(teacher: Any, args: Any, quantization: str = "none") -> tuple[Any, Any]:
    """A teacher and its tokenizer, None where nobody knows it. A name, folder or hub id is loaded in 32-bit floats.

    In 4 bits with `quantization="nf4"`. `args.teacher_model_init_kwargs` are obeyed as by TRL.
    """
    from rlkit.models import load_model as load

    if not isinstance(teacher, str | Path):
        source = getattr(teacher.config, "_name_or_path", "")
        return teacher, _tokenizer(source) if source else None
    if args.teacher_model_init_kwargs is None:
        return load(teacher, quantization=quantization)
    from trl.trainer.utils import create_model_from_path

    options = dict(args.teacher_model_init_kwargs)
    dtype = options.get("dtype")
    options["dtype"] = getattr(torch, dtype) if isinstance(dtype, str) and dtype != "auto" else dtype
    return create_model_from_path(str(teacher), **options), _tokenizer(str(teacher))


def _tokenizer(source: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError):
        return None


def shared_vocabulary(student: Any, teacher: Any, tokenizer: Any, teachers_tokenizer: Any) -> int:
    """How many entries of both heads mean the same.

    Args:
        student: the student.
        teacher: the teacher.
        tokenizer: the student's.
        teachers_tokenizer: the teacher's, or None where it is not known.

    Raises:
        ValueError: the tokenizers differ, or sizes differ and nobody knows whether the tokenizers do.

    """
    sizes = [model.config.get_text_config().vocab_size for model in (student, teacher)]
    if teachers_tokenizer is None:
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"The student's head has {sizes[0]} entries and the teacher's {sizes[1]}, and the teacher's tokenizer "
                "is not known. If both use the same tokenizer, pass teacher_tokenizer=."
            )
        logger.warning("The teacher's tokenizer is not known: token ids are taken to mean the same to both models.")
        return sizes[0]
    mine, theirs = tokenizer.get_vocab(), teachers_tokenizer.get_vocab()
    if mine != theirs:
        differ = sorted(token for token in {*mine, *theirs} if mine.get(token) != theirs.get(token))
        raise ValueError(
            f"Teacher and student have different tokenizers: {len(differ)} tokens have another id or none, among them "
            f"{', '.join(map(repr, differ[:3]))}. The teacher would score other texts than the student wrote. Use a "
            "teacher of the student's family, or TRL's GOLD trainer, which distils across tokenizers."
        )
    shared = min(sizes)
    if max(mine.values()) >= shared:
        raise ValueError(
            f"A head of {shared} entries is too small for the tokenizer's largest id {max(mine.values())}."
        )
    return shared


class Teachers(DistillationTrainer):
    """How `DistillTrainer` asks its teacher."""

    method: Method
    teacher_model: Any
    vocabulary: int
    teacher_refreshed: bool

    def _set_teacher(self, teacher: Any, tokenizer: Any) -> None:
        """Take the teacher in, as TRL would, or make it from the student."""
        self.vocabulary = self.model.config.get_text_config().vocab_size
        self.teacher_refreshed = False
        kind = self.method.teacher
        if kind == "initial" and not self._has_adapters:
            teacher, tokenizer = copy.deepcopy(self.accelerator.unwrap_model(self.model)), self._tokenizer
        if teacher is None:
            return
        self.vocabulary = shared_vocabulary(self.model, teacher, self._tokenizer, tokenizer)
        if self.vocabulary < self.model.config.get_text_config().vocab_size:
            self._suppress(range(self.vocabulary, self.model.config.get_text_config().vocab_size))
        teacher.requires_grad_(False)
        if self.is_deepspeed_enabled:
            from trl.models import prepare_deepspeed

            self.teacher_model = prepare_deepspeed(teacher, self.accelerator)
        else:
            self.teacher_model = self.accelerator.prepare_model(teacher, evaluation_mode=True)
        self.teacher_model.eval()

    def _suppress(self, ids: range) -> None:
        """Never draw what the teacher has no entry for: padding of the student's head."""
        if self.use_vllm:
            raise ValueError("The student's head is larger than the teacher's, which vLLM cannot respect. Resize it.")
        known = self.generation_config.suppress_tokens or []
        self.generation_config.suppress_tokens = [*known, *ids]

    @property
    def _has_adapters(self) -> bool:
        return hasattr(self.accelerator.unwrap_model(self.model), "peft_config")

    def _teacher(self, student: Any) -> Any:
        """The model that teaches, or None."""
        if self.method.teacher == "none":
            return None
        return student if self.teacher_model is None else self.accelerator.unwrap_model(self.teacher_model)

    @torch.no_grad()
    def _taught(self, teacher: Any, batch: dict[str, Any]) -> Tensor:
        """The teacher's hidden states (B, T, H) at the completion; under a prompt of its own if there is one.

        The completion is the same after both prompts, so states are counted from the end and line up.
        """
        prompt = "teacher_prompt" if "teacher_prompt_ids" in batch else "prompt"
        ids = torch.cat([batch[f"{prompt}_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch[f"{prompt}_mask"], batch["completion_mask"]], 1)
        asked = (ids, mask, batch["completion_ids"].size(1))
        if self.teacher_model is None:
            with self._as_teacher(teacher):
                return self._get_last_hidden_state(teacher, *asked)
        self.teacher_model.eval()
        return self._forward_redirection(self.teacher_model, teacher, self._get_last_hidden_state, teacher, *asked)

    @contextmanager
    def _as_teacher(self, student: Any) -> Iterator[None]:
        """The student without dropout, and without its adapters if the teacher is what it was at the start."""
        training = student.training
        student.eval()
        try:
            if self.method.teacher == "initial":
                with student.disable_adapter():
                    yield
            else:
                yield
        finally:
            student.train(training)

    def refresh_teacher(self) -> None:
        """Make the teacher of a method with `teacher="initial"` the student as it is now; it stays frozen.

        Raises:
            ValueError: the teacher is not the student's earlier self, or it is the base under an adapter.

        """
        if self.method.teacher != "initial":
            raise ValueError(f"Method {self.method.name!r} has no earlier self of the student as its teacher.")
        if self.teacher_model is None:
            raise ValueError("The teacher is the model below the adapter: it cannot be refreshed. Train all weights.")
        now = self.accelerator.unwrap_model(self.model).state_dict()
        self.accelerator.unwrap_model(self.teacher_model).load_state_dict(now)
        self.teacher_refreshed = True

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Beside the checkpoint: a teacher that is no longer the model that the run began with."""
        if self.teacher_refreshed and self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            save_model(self.accelerator.unwrap_model(self.teacher_model), str(folder / TEACHER_NAME))
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and (Path(checkpoint) / TEACHER_NAME).exists():
            load_model(self.accelerator.unwrap_model(self.teacher_model), str(Path(checkpoint) / TEACHER_NAME))
            self.teacher_refreshed = True

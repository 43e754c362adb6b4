"""Models and tokenizers: the tiny bases by name, any folder or hub id, or a model that exists already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit import paths
from rlkit.method import near
from rlkit.tasks.base import Task, get_task, task_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Loaded:
    """What a preset trains."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel
    """A model object of its own on every call."""
    task: Task
    teacher: PreTrainedModel | None = None
    """The teacher, where the preset has one."""


def load(name: str = "tiny") -> Loaded:
    """Tokenizer, policy, task and, where there is one, teacher of a preset (`"tiny"`), task (`"planted"`) or tiny base.

    A task gives its student and teacher; a tiny base its own model with the task it was made for, and that task's
    teacher.

    Raises:
        ValueError: there is neither preset, task with a student nor base of that name; the message lists near ones.
    """
    base, task = _named(name)
    teacher = task.bases.get("teacher")
    model, tokenizer = load_model(base)
    return Loaded(tokenizer, model, task, load_model(teacher)[0] if teacher else None)


def _named(name: str) -> tuple[str, Task]:
    """The base and the task of a preset, a task or a base."""
    from rlkit.presets import PRESETS

    if name in PRESETS:
        return PRESETS[name].model, get_task(PRESETS[name].task)
    if name in base_names():
        curve = json.loads((paths.bases() / name / "curve.json").read_text(encoding="utf-8"))
        return name, get_task(curve["recipe"]["task"])
    if name in task_kinds() and "student" in get_task(name).bases:
        return get_task(name).bases["student"], get_task(name)
    raise ValueError(f"There is no preset or base {name!r}. {near(name, [*PRESETS, *base_names()])}")


def base_names() -> list[str]:
    """Names of the tiny bases that are there."""
    return sorted(folder.parent.name for folder in paths.bases().glob("*/config.json"))


def load_model(model: str | Path | PreTrainedModel) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal model in 32-bit floats and its tokenizer.

    Args:
        model: a tiny base by name, a folder, a hub id, or a model object, which is used as it is; its tokenizer is then
            read from the folder or hub id that it came from.

    Raises:
        ValueError: a model object that came from nowhere, so that no tokenizer can be found.
        OSError: no such folder or hub id; the message lists the tiny bases.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not isinstance(model, str | Path):
        return model, _tokenizer_of(model)
    source = str(paths.bases() / model) if model in base_names() else str(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        # Weights are safetensors or nothing: a pickle can run code when it is read.
        with quiet():
            loaded = AutoModelForCausalLM.from_pretrained(source, dtype="float32", use_safetensors=True)
    except OSError as error:
        raise OSError(
            f"Cannot load the model {str(model)!r}; tiny bases: {', '.join(base_names())}.\n{error}"
        ) from error
    return loaded, tokenizer


@contextmanager
def quiet() -> Iterator[None]:
    """No bar for reading weights from disk: it would be the longest output of a notebook that loads a tiny base."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _tokenizer_of(model: Any) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    source = getattr(model.config, "_name_or_path", "")
    if not source:
        raise ValueError(
            "This model was not loaded from a folder or the hub, so its tokenizer is unknown: "
            "save model and tokenizer to a folder and pass the folder, or pass processing_class."
        )
    return AutoTokenizer.from_pretrained(source)

"""Load a model and its tokenizer: a tiny base, `smollm2`, a folder, a hub id, or a model that exists already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit import paths
from rlkit.method import near
from rlkit.models import adapters, smollm2
from rlkit.tasks.base import Task, get_task, task_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


REVISIONS = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": "12fd25f77366fa6b3b4b768ec3050bf629380bac",
    "Qwen/Qwen2.5-0.5B-Instruct": "7ae557604adf67be50417f59c2c2f167def9a775",
    "Qwen/Qwen2.5-1.5B-Instruct": "989aa7980e4cf806f80c7fef2b1adb7bc71aa306",
    "Qwen/Qwen2.5-Math-1.5B": "4a83ca6e4526a4f2da3aa259ec36c259f66b2ab2",
    "Qwen/Qwen3-0.6B": "c1899de289a04d12100db370d81485cdf75e47ca",
    "Qwen/Qwen3-1.7B": "70d244cc86ccca08cf5af4e1e306ecf908b1ad5e",
    "Qwen/Qwen3-4B": "1cfa9a7208912126459214e8b04321603b3df60c",
}
"""The hub's commits that the presets and notebooks name. Any other hub id is taken at its newest commit."""
THINKS = "Qwen/Qwen3-"
"""Models that think before they answer unless their chat template is told not to: longer than completions here are."""


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


def source_of(model: str | Path) -> str:
    """The folder or hub id behind a name: a tiny base, `smollm2` (fetched at its first use), or what was given."""
    if str(model) in base_names():
        return str(paths.bases() / model)
    return str(smollm2.folder()) if str(model) == smollm2.NAME else str(model)


def load_model(
    model: str | Path | PreTrainedModel, *, quantization: str = "none", dtype: str = "float32"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal model and its tokenizer.

    Args:
        model: a tiny base by name, `smollm2`, a folder, a hub id, or a model object, which is used as it is; its
            tokenizer is then read from the folder or hub id that it came from.
        quantization: "nf4": 4-bit weights, frozen, for adapters on top; "none".
        dtype: of weights that are not in 4 bits.

    Raises:
        ValueError: a model object that came from nowhere, so that no tokenizer can be found; unknown quantization.
        OSError: no such folder or hub id; the message says what to do.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not isinstance(model, str | Path):
        return adapters.trainable_in_4_bits(model), _tokenizer_of(model)
    source, bits = source_of(model), adapters.quantization_config(quantization)
    # Left unset, transformers would ask at the terminal whether to run code that comes with a model.
    safe = {"revision": REVISIONS.get(source, "main"), "trust_remote_code": False}
    # Weights are safetensors or nothing: a pickle can run code when it is read.
    how: dict[str, Any] = {"dtype": dtype, "use_safetensors": True, **safe}
    if bits is not None:
        how |= {"quantization_config": bits, "device_map": _here()}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **safe)
        with quiet():
            loaded = AutoModelForCausalLM.from_pretrained(source, **how)
    except OSError as error:
        raise OSError(_not_found(str(model), error)) from error
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"rlkit never runs code that comes with a model, and {str(model)!r} needs its own. Take a model whose "
            "architecture transformers knows, or load it yourself and pass the model object."
        ) from error
    return adapters.trainable_in_4_bits(loaded), _without_thinking(tokenizer, source)


def _here() -> dict[str, Any]:
    """All of a 4-bit model on this process's device."""
    import torch

    return {"": torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"}


def _not_found(model: str, error: OSError) -> str:
    on_hub = "/" in model and not Path(model).exists()
    fetch = f"\nOffline? On a machine with a network: hf download {model}; then copy HF_HOME (~/.cache/huggingface)."
    names = ", ".join([*base_names(), smollm2.NAME])
    if "safetensors" in str(error) and not on_hub and Path(model).is_dir():
        return (
            f"{model} holds no safetensors, the only weights that are read: a pickle (.bin, .pt) can run code. Where "
            f"you trust it, load it elsewhere and save it with model.save_pretrained({model!r}).\n{error}"
        )
    return f"Cannot load the model {model!r}; known by name: {names}.{fetch if on_hub else ''}\n{error}"


def _without_thinking(tokenizer: Any, source: str) -> Any:
    """The chat template as it is with `enable_thinking=False`, for training and evaluation alike."""
    if source.startswith(THINKS) and isinstance(tokenizer.chat_template, str):
        tokenizer.chat_template = "{%- set enable_thinking = false %}" + tokenizer.chat_template
    return tokenizer


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
    return AutoTokenizer.from_pretrained(source, trust_remote_code=False)

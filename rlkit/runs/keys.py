"""What determines a run, and the key that names it: a hash over source files, settings, weights, seed and versions.

Arms of different notebooks or presets with the same content share a run. Nothing here imports TRL.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlkit.combine import JOIN
from rlkit.method import Method, get_method
from rlkit.presets import get_preset
from rlkit.runs.digest import digest, join
from rlkit.runs.sources import sources
from rlkit.trainers.factory import DISTILL, student_of, teacher_of

VERSIONS = ("torch", "transformers", "trl")
WEIGHTS = {".json", ".safetensors", ".jinja", ".model"}


@dataclass(frozen=True)
class Run:
    """One training run, as it is asked for: an arm, a seed, a preset."""

    method: str | Method = "grpo"
    preset: str = "tiny"
    seed: int = 0
    model: Any = None
    task: Any = None
    reward: Any = None
    teacher: Any = None
    overrides: Mapping[str, Any] = field(default_factory=dict)


def versions() -> dict[str, str]:
    """Versions of the libraries that a run's numbers depend on, local parts such as `+cpu` left out."""
    return {name: importlib.metadata.version(name).partition("+")[0] for name in VERSIONS}


def this_machine() -> dict[str, str]:
    """What two machines must share for equal bits: system, architecture, CPU, and versions of the libraries."""
    from rlkit.machine import machine_class

    return {**machine_class(), **versions()}


def key_of(parts: Mapping[str, str]) -> str:
    """The key from its parts."""
    return join(*(f"{name} {parts[name]}" for name in sorted(parts)))


def run_parts(run: Run) -> dict[str, str]:
    """What determines the run, each part hashed: compare two to see why a run was not taken from the cache.

    Raises:
        rlkit.runs.digest.Unhashable: something in it has no content to hash.
        ValueError: unknown method, preset or task.
    """
    from rlkit.tasks.base import get_task

    method, dial = get_method(run.method), get_preset(run.preset)
    task = get_task(dial.task if run.task is None else run.task)
    reward = next((spec for spec in (run.reward, method.reward) if spec is not None), task.default_reward)
    teacher = teacher_of(task) if run.teacher is None and method.trainer == "distill" else run.teacher
    layers = {"preset": dial.settings, "task": task.config, "method": {**method.config, **method.options}}
    parts = {} if teacher is None else {"teacher": model_digest(teacher)}
    return parts | {
        "settings": digest([layers, dial.threads], "the preset's settings"),
        "changed": digest(_changed(run.overrides, layers), "a setting"),
        "method": digest(method, f"method {method.name!r}"),
        "task": digest(task, f"task {task.name!r}"),
        "reward": digest(reward, "the reward"),
        "model": model_digest(student_of(task, dial) if run.model is None else run.model),
        "seed": str(run.seed),
        "versions": digest(versions()),
        "sources": digest(run_sources(method)),
    }


def run_sources(method: Method) -> dict[str, str]:
    """Hashes of the files that every run of this method executes, by module: trainer, evaluation, the method's file."""
    family = [DISTILL] if method.trainer == "distill" else []
    return sources("rlkit.trainers.factory", "rlkit.runs.training", *family, *_files_of(method))


def _files_of(method: Method) -> list[str]:
    """Modules of `rlkit.methods` with a method of this name: the file counts even where no function of it is used."""
    names = {name.strip() for name in method.name.split(JOIN)}  # "mc_grpo+replay_uniform" is made of two
    loaded = [name for name in sys.modules if name.startswith("rlkit.methods.")]
    return [name for name in loaded if any(_is_named(value, names) for value in vars(sys.modules[name]).values())]


def _is_named(value: Any, names: set[str]) -> bool:
    return isinstance(value, Method) and value.name in names


def _changed(overrides: Mapping[str, Any], layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of the call, without those that say what holds anyway."""
    below = {**layers["preset"], **layers["task"], **layers["method"]}
    return {name: value for name, value in overrides.items() if name not in below or not _same(below[name], value)}


def _same(a: Any, b: Any) -> bool:
    return type(a) in (bool, int, float, str) and type(a) is type(b) and a == b


def measure_parts(function: Callable[..., Any], inputs: Mapping[str, Any], seed: int | None) -> dict[str, str]:
    """What determines a measurement: the function with all that it reads, its inputs, the seed, versions."""
    return {
        "function": digest(function, f"function {getattr(function, '__name__', function)!r}"),
        "inputs": digest(dict(inputs), "the inputs"),
        "seed": str(seed),
        "versions": digest(versions()),
    }


def model_digest(model: Any) -> str:
    """Hash of the weights: a base or folder by its files, a hub id by its commit, a model object by its tensors."""
    from rlkit import paths
    from rlkit.models import smollm2

    if not isinstance(model, str | Path):
        return digest(model, "the model")
    own = paths.bases() / model
    named = smollm2.folder() if str(model) == smollm2.NAME else Path(model)
    folder = own if (own / "config.json").is_file() else named
    if folder.is_dir():
        files = sorted(path for path in folder.iterdir() if path.suffix in WEIGHTS and path.name != "curve.json")
        return join(*(f"{path.name} {_file_digest(path)}" for path in files))
    return join("hub", str(model), _commit(str(model)))


def _commit(name: str) -> str:
    """The commit that is pinned, or that of the local cache; "unknown" before it was ever downloaded."""
    from huggingface_hub import try_to_load_from_cache

    from rlkit.models.loading import REVISIONS

    if name in REVISIONS:
        return REVISIONS[name]
    found = try_to_load_from_cache(name, "config.json")
    return Path(found).parent.name if isinstance(found, str) else "unknown"


def _file_digest(path: Path) -> str:
    stat = path.stat()
    return _digest_at(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=256)
def _digest_at(path: Path, changed: int, size: int) -> str:
    """Of a file as it was at that time: 540 MB of weights are read once a process."""
    content = path.read_bytes()
    return hashlib.sha256(content.replace(b"\r\n", b"\n") if path.suffix == ".json" else content).hexdigest()

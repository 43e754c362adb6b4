"""What `rlkit train` is asked for: values as texts become settings, and a folder is only continued by the same plan."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlkit.console import refuse_secret
from rlkit.method import Method, get_method
from rlkit.presets import get_preset
from rlkit.settings import Settings, resolve

TRAINER_ARGUMENTS = ("on_long_prompt", "skip_zero_advantage")
"""What `rlkit.trainer` takes beside the settings, given with -p as well."""
SAVES = 10
"""Checkpoints of a run where nobody says how many."""


@dataclass(frozen=True)
class Plan:
    """One training run. The fields are those of `rlkit.trainer`; `values` are its overrides."""

    method: str
    preset: str = "tiny"
    seed: int = 0
    model: str | None = None
    task: str | None = None
    reward: str | None = None
    teacher: str | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in {**asdict(self), **self.values}.items():
            refuse_secret(name, value)

    @property
    def name(self) -> str:
        """Of the folder, where nobody gives one."""
        return f"{self.method}-{self.preset}-seed{self.seed}".replace("+", "_")

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `rlkit.trainer`."""
        named = asdict(self)
        return {**named.pop("values"), **named}


def value_of(name: str, text: str, method: Method) -> Any:
    """The text of `-p name=text` as the type that the setting has.

    Numbers, true, false, null, lists and objects are read as JSON; anything else stays a text. The settings check the
    type then, and list near names of an unknown one.
    """
    if isinstance(method.options.get(name), str):
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        lower = text.strip().lower()
        value = {"true": True, "false": False}.get(lower, text)
        return _number(text) if value is text else value
    known = method.options.get(name)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if isinstance(known, float) and whole else value


def _number(text: str) -> Any:
    """Numbers that Python writes and JSON does not (1_000, .5); else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def settings_of(plan: Plan) -> Settings:
    """The settings of a plan without a model being loaded. Raises ValueError as `rlkit.trainer` does."""
    from rlkit.tasks.base import get_task

    method, dial = get_method(plan.method), get_preset(plan.preset)
    task = get_task(dial.task if plan.task is None else plan.task)
    return resolve(method, dial, task.config, overrides_of(plan))


def overrides_of(plan: Plan) -> dict[str, Any]:
    """The settings among a plan's values."""
    return {name: value for name, value in plan.values.items() if name not in TRAINER_ARGUMENTS}


def saving(settings: Settings) -> dict[str, Any]:
    """The settings by which checkpoints are written: those of the call, else about ten of them, two kept.

    A checkpoint holds no rollouts, so a run is saved only between generation batches.

    Raises:
        ValueError: the call saves by something else than steps.

    """
    given = {name for name, origin in settings.origin.items() if origin == "call"}
    if "save_strategy" in given and settings["save_strategy"] != "steps":
        raise ValueError("save_strategy is 'steps' here: rlkit train has to be able to go on. Leave it out.")
    period = save_period(settings)
    steps = settings.get("max_steps") or 0
    wanted = math.ceil(steps / SAVES) if steps > 0 else 100
    every = settings["save_steps"] if "save_steps" in given else math.ceil(wanted / period) * period
    kept = settings["save_total_limit"] if "save_total_limit" in given else 2
    return {"save_strategy": "steps", "save_steps": every, "save_total_limit": kept}


def save_period(settings: Settings) -> int:
    """Optimiser steps between two points at which a run can be saved."""
    if settings.method.trainer == "distill":
        return 1
    parts = settings.get("gradient_accumulation_steps") or 1
    size = settings["per_device_train_batch_size"] * int(os.environ.get("WORLD_SIZE", "1"))
    batch = settings.get("generation_batch_size")
    chunks = settings.get("steps_per_generation") or (batch // size if batch else parts)
    every = chunks * (settings.get("num_iterations") or 1)
    return every // math.gcd(every, parts)


def record_of(plan: Plan, settings: Mapping[str, Any]) -> dict[str, str]:
    """Everything that determines the run, as texts: what a folder's next call is compared with."""
    named = {name: repr(value) for name, value in asdict(plan).items() if name != "values"}
    extra = {name: repr(value) for name, value in plan.values.items() if name in TRAINER_ARGUMENTS}
    processes = os.environ.get("WORLD_SIZE", "1")
    return {**{name: repr(settings[name]) for name in sorted(settings)}, **extra, **named, "processes": processes}


def check_same(folder: Path, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Raise ValueError, naming each setting that differs, where a folder holds another run."""
    differ = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if differ:
        lines = "; ".join(f"{name} was {old.get(name, 'not set')}, now {new.get(name, 'not set')}" for name in differ)
        raise ValueError(f"{folder} holds another run ({lines}). Name another folder with --out, or remove this one.")

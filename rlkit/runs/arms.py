"""Arms x seeds -> cached, parallel, resumable runs -> one tidy table; and measurements without training, likewise.

Arms with the same seed see the same prompts in the same order, so their differences are paired.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlkit import paths
from rlkit.method import Method, get_method
from rlkit.presets import get_preset
from rlkit.runs import results
from rlkit.runs.digest import join
from rlkit.runs.grid import RunError, do
from rlkit.runs.jobs import Job, new_job
from rlkit.runs.keys import Run
from rlkit.runs.table import Runs

__all__ = ["Arm", "RunError", "Runs", "arm", "measure", "run"]

TIERS = ("core", "full")
ROLES = ("method", "baseline", "control", "variant")
APART = ("model", "task", "reward", "teacher")
"""Settings of an arm that are no TRL option."""


@dataclass(frozen=True)
class Arm:
    """One line of a comparison: a method with settings, under a name."""

    method: str | Method
    label: str
    tier: str = "core"
    """"core" arms run in every preset, "full" ones only in those that run everything."""
    role: str = "variant"
    """What it is in figures: method, baseline, control or variant."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """TRL options, options of the method, rlkit's own settings, and `model`, `task`, `reward`, `teacher`."""

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ValueError(f"Arm {self.label!r}: tier is one of {', '.join(TIERS)}, not {self.tier!r}.")
        if self.role not in ROLES:
            raise ValueError(f"Arm {self.label!r}: role is one of {', '.join(ROLES)}, not {self.role!r}.")
        if any(mark in self.label for mark in '",\n\r'):
            raise ValueError(f"Arm {self.label!r}: a label has no comma, quote or line break.")

    @property
    def method_name(self) -> str:
        """Name of its method."""
        return self.method if isinstance(self.method, str) else self.method.name

    def run(self, preset: str, seed: int, common: Mapping[str, Any]) -> Run:
        """One of its runs; the arm's own settings have precedence over those common to all arms."""
        settings = {**common, **self.settings}
        own = {name: settings.pop(name, None) for name in APART}
        return Run(self.method, preset, seed, overrides=settings, **own)


def arm(
    method: str | Method, label: str | None = None, *, tier: str = "core", role: str = "variant", **settings: Any
) -> Arm:
    """An arm of a comparison.

    Args:
        method: name or `Method`.
        label: its name in figures and tables; default: the method's name and the settings.
        tier: "core" runs in every preset, "full" only where everything runs.
        role: method, baseline, control or variant: decides the colour.
        settings: TRL options, the method's options, rlkit's own settings, and `model`, `task`, `reward`,
            `teacher`.

    Raises:
        ValueError: unknown method, tier or role.
    """
    chosen = get_method(method)
    words = [f"{name}={_word(value)}" for name, value in settings.items()]
    return Arm(method, label or " ".join([chosen.name, *words]), tier, role, settings)


def _word(value: Any) -> str:
    name = getattr(value, "__name__", None) or getattr(value, "name", None)
    return str(name if isinstance(name, str) else value).replace(",", ";").replace('"', "'")


def run(
    arms: Sequence[Arm | str | Method],
    *,
    preset: str = "tiny",
    seeds: int | Sequence[int] | None = None,
    tiers: Sequence[str] | None = None,
    workers: int | None = None,
    progress: bool | str = True,
    fresh: bool | None = None,
    **common: Any,
) -> Runs:
    """Train every arm with every seed, as far as that has not been done before.

    Args:
        arms: arms, names of methods, or methods.
        preset: where settings, model and task come from.
        seeds: how many (0, 1, ...), or which; default: the preset's.
        tiers: which arms run; default: the preset's.
        workers: processes; default `RLKIT_WORKERS`, else the preset's, else one per core and free GB; 0 trains in this
            process.
        progress: a bar, or "lines", or False.
        fresh: train again what is in the store; default: whether `RLKIT_FRESH` is set.
        common: settings of all arms that an arm does not set itself.

    Raises:
        RunError: runs failed; the message names arm, seed and cause. All others are kept.
        ValueError: unknown method or preset, two arms of one name, no arm.
    """
    dial = get_preset(preset)
    chosen = [item for item in as_arms(arms) if item.tier in (tiers or dial.tiers)]
    if not chosen:
        raise ValueError(f"No arm to run: preset {preset!r} runs arms of tier {' and '.join(tiers or dial.tiers)}.")
    wanted = [(item, seed) for item in chosen for seed in seed_list(seeds, dial.seeds)]
    todo = [_job(item.label, fresh, run=item.run(preset, seed, common), seed=seed) for item, seed in wanted]
    steps = [planned_steps(item, preset, common) for item, _ in wanted]
    count = dial.workers if workers is None and not os.environ.get("RLKIT_WORKERS") else workers
    entries = do([job for job, _ in todo], workers=count, progress=progress, name="runs", steps=steps)
    pairs = [(item, seed, entry) for (item, seed), entry in zip(wanted, entries, strict=True)]
    notes = list(dict.fromkeys(note for _, found in todo for note in found))
    notes += [f"{item.label!r}, seed {seed}: {note}" for item, seed, entry in pairs for note in entry.meta["notes"]]
    for note in notes:
        warnings.warn(note, stacklevel=2)
    keys = {(item.label, seed): job.key for (item, seed), (job, _) in zip(wanted, todo, strict=True)}
    return Runs.collect(chosen, pairs, keys, notes)


def measure(
    function: Callable[..., Any],
    *,
    seeds: int | Sequence[int] | None = None,
    workers: int | None = None,
    progress: bool | str = True,
    fresh: bool | None = None,
    **inputs: Any,
) -> Any:
    """Call a function that trains nothing, and keep what it returns: same cache, keys and workers as `run`.

    Args:
        function: returns a DataFrame, a dict of arrays, or numbers and texts in lists and dicts. It runs with torch,
            numpy and random seeded, on one thread.
        seeds: call it once with each `seed=`; data frames are joined, with a column `seed`, else a list comes back.
        workers: as for `run`; by default a single call is made in this process.
        progress: as for `run`.
        fresh: as for `run`.
        inputs: its arguments.

    Raises:
        RunError: the function failed.
    """
    todo, each = _measure_jobs(function, seeds, fresh, inputs)
    for note in dict.fromkeys(note for _, found in todo for note in found):
        warnings.warn(note, stacklevel=2)
    if workers is None and len(todo) == 1:
        workers = 0  # one call gains nothing from a worker, and would wait for it to start
    entries = do([job for job, _ in todo], workers=workers, progress=progress, name=todo[0][0].name)
    values = [results.decode(entry.meta["kind"], entry.files) for entry in entries]
    return values[0] if seeds is None else joined(values, each)


def run_key(item: Arm, preset: str, seed: int, common: Mapping[str, Any]) -> str:
    """The key of a run of an arm; "" for what cannot be hashed."""
    job, _ = new_job(item.label, paths.home(), run=item.run(preset, seed, common), seed=seed)
    return job.key or ""


def measure_key(
    function: Callable[..., Any], inputs: Mapping[str, Any], seeds: int | Sequence[int] | None = None
) -> str | None:
    """The key of a measurement, over all its seeds; None for what cannot be hashed."""
    keys = [job.key for job, _ in _measure_jobs(function, seeds, False, inputs)[0]]
    known = [key for key in keys if key is not None]
    return join(*known) if len(known) == len(keys) else None


def _measure_jobs(
    function: Callable[..., Any], seeds: int | Sequence[int] | None, fresh: bool | None, inputs: Mapping[str, Any]
) -> tuple[list[tuple[Job, list[str]]], Sequence[int | None]]:
    name = getattr(function, "__name__", type(function).__name__)
    each: Sequence[int | None] = [None] if seeds is None else seed_list(seeds, 1)
    return [_job(name, fresh, function=function, inputs=inputs, seed=seed) for seed in each], each


def joined(values: Sequence[Any], seeds: Sequence[int | None]) -> Any:
    """Results of several seeds as one: data frames under each other with a column `seed`, else the list."""
    import pandas as pd

    if not all(isinstance(value, pd.DataFrame) for value in values):
        return list(values)
    frames = [
        value.assign(seed=seed) if "seed" not in value else value for value, seed in zip(values, seeds, strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


def seed_list(seeds: int | Sequence[int] | None, default: int) -> list[int]:
    """3 means 0, 1, 2; a sequence means itself.

    Raises:
        ValueError: none, a negative one, or one twice.
    """
    chosen = list(range(seeds or default)) if isinstance(seeds, int) or seeds is None else [int(seed) for seed in seeds]
    if not chosen or min(chosen) < 0 or len(set(chosen)) < len(chosen):
        raise ValueError(f"seeds is a number of seeds, at least 1, or a list of different ones, not {seeds!r}.")
    return chosen


def as_arms(items: Sequence[Arm | str | Method]) -> list[Arm]:
    """Arms from arms, names and methods.

    Raises:
        ValueError: two of one label.
    """
    arms = [item if isinstance(item, Arm) else arm(item) for item in items]
    labels = [item.label for item in arms]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ValueError(f"Two arms are named {twice[0]!r}: give labels.")
    return arms


def planned_steps(item: Arm, preset: str, common: Mapping[str, Any]) -> int:
    """Optimiser steps of one run of an arm, as far as the settings say so."""
    steps = {**get_preset(preset).settings, **common, **item.settings}.get("max_steps", 1)
    return max(1, int(steps)) if isinstance(steps, int | float) else 1


def _job(name: str, fresh: bool | None, **what: Any) -> tuple[Job, list[str]]:
    fresh = os.environ.get("RLKIT_FRESH") == "1" if fresh is None else fresh
    return new_job(name, paths.home(), fresh=fresh, **what)

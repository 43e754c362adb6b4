"""Do today's files still give the recorded numbers? The first steps of each core arm, trained again and compared.

While they are equal, the recorded evidence stands, whatever was refactored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlkit import paths
from rlkit.recorded import Recorded
from rlkit.runs.grid import do
from rlkit.runs.jobs import METRICS, Job, new_job
from rlkit.runs.keys import this_machine
from rlkit.runs.table import read_rows

if TYPE_CHECKING:
    from rlkit.runs import Arm

STEPS = 3
"""Optimiser steps that are compared."""
SEED = 0
LOOSE = 1e-3
"""How near the first step must come on another class of machine, relative, or absolute near 0."""


def fingerprint(frame: pd.DataFrame, arms: Sequence[Arm], machine: Mapping[str, str]) -> dict[str, Any]:
    """Metrics of the first steps of seed 0 of each core arm, with all digits: {arm: {metric: [[step, value], ...]}}."""
    labels = [arm.label for arm in arms if arm.tier == "core"]
    early = frame[(frame["seed"] == SEED) & (frame["step"] <= STEPS)]
    tables = {label: _table(early[early["arm"] == label]) for label in labels}
    return {"machine": dict(machine), "seed": SEED, "steps": STEPS, "arms": {k: v for k, v in tables.items() if v}}


def _table(rows: pd.DataFrame) -> dict[str, list[list[float]]]:
    table: dict[str, list[list[float]]] = {}
    for step, metric, value in zip(rows["step"], rows["metric"], rows["value"], strict=True):
        if math.isfinite(value):
            table.setdefault(metric, []).append([int(step), float(value)])
    return dict(sorted(table.items()))


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any], exact: bool) -> list[str]:
    """Where two fingerprints differ, one line each: everywhere and in every bit, or in the first step beyond 1e-3."""
    found = []
    for label, metrics in recorded["arms"].items():
        if label not in now["arms"]:
            found.append(f"arm {label!r} is gone")
            continue
        for metric, points in metrics.items():
            fresh = {step: value for step, value in now["arms"][label].get(metric, ())}
            for step, value in points:
                if (exact or step <= 1) and not _agree(fresh.get(step), value, exact):
                    found.append(f"arm {label!r}: {metric} at step {step} is {fresh.get(step)}, recorded {value}")
    found += [f"arm {label!r} was not recorded" for label in now["arms"] if label not in recorded["arms"]]
    return found


def _agree(now: float | None, recorded: float, exact: bool) -> bool:
    if now is None:
        return False
    return now == recorded if exact else math.isclose(now, recorded, rel_tol=LOOSE, abs_tol=LOOSE)


def retrained(arms: Sequence[Arm], preset: str, workers: int) -> dict[str, Any]:
    """The fingerprint that today's files give."""
    core = [arm for arm in arms if arm.tier == "core"]
    jobs = [_short_job(arm, preset) for arm in core]
    entries = do(jobs, workers=workers, progress=False)
    frames = [read_rows(entry.text(METRICS), arm.label, SEED) for arm, entry in zip(core, entries, strict=True)]
    return fingerprint(pd.concat(frames, ignore_index=True), core, this_machine())


def _short_job(arm: Arm, preset: str) -> Job:
    run = arm.run(preset, SEED, {})
    return new_job(arm.label, paths.home(), stop_after=STEPS, run=run, seed=SEED)[0]


def check_fingerprint(slug: str, arms: Sequence[Arm] | None = None, *, workers: int = 0) -> list[str]:
    """Retrain the first steps of a notebook's core arms and compare them with what is recorded.

    On the class of machine that the fingerprint names, every metric of every step must be equal; elsewhere the first
    step, to 1e-3.

    Args:
        slug: the notebook.
        arms: its arms; by default its cells tagged `parameters` and `arms` are run to get them.
        workers: processes; 0 trains here.

    Returns:
        Nothing where all is equal; else what differs, and the command that records the notebook again.

    Raises:
        NotRecorded: nothing is recorded.
    """
    from rlkit.runs import as_arms

    if arms is None:
        from rlkit.notebooks import arms_of

        arms = as_arms(arms_of(slug))
    recorded = Recorded.read(paths.recorded(slug), slug)
    old = recorded.fingerprint
    used = [arm for arm in arms if arm.label in old["arms"] or arm.tier == "core"]
    now = retrained(used, recorded.preset, workers)
    found = differences(old, now, exact=old["machine"] == now["machine"])
    again = f"{slug}: the code no longer gives the recorded numbers. Record again: rlkit figures {slug} --preset full"
    return [*found, again] if found else []

"""Steps and comparisons as measurements: made from an arm, kept by a notebook as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlkit.runs import Arm
    from rlkit.steps.step import Step


def previewed(
    arm: Arm,
    preset: str,
    seed: int,
    at: Sequence[int],
    groups: int | None,
    prompts: Sequence[Any] | None,
    common: Mapping[str, Any],
    key: str = "",
) -> list[dict[str, Any]]:
    """Steps of one run of an arm, in slow motion.

    Args:
        arm: what to train.
        preset: where settings, model and task come from.
        seed: of the run.
        at: optimiser steps done before each; training goes on as far as the last one.
        groups: how many groups of each step to keep; None for all.
        prompts: as for `trainer.preview`; only before training.
        common: settings of all arms.
        key: tells runs of different code apart.
    """
    steps = _steps(_trainer(arm, preset, seed, common, at), at, prompts)
    return [(step if groups is None else step.only(groups)).to_dict() for step in steps]


def compared(
    arm: Arm,
    preset: str,
    seed: int,
    methods: Sequence[str],
    groups: int | None,
    prompts: Sequence[Any] | None,
    common: Mapping[str, Any],
    key: str = "",
) -> dict[str, Any]:
    """Several methods on the rollouts of an arm's first step; arguments as for `previewed`."""
    from rlkit.steps.compare import compare

    found = compare(_trainer(arm, preset, seed, common, ()).preview(prompts), methods).to_dict()
    keep = [n for n, group in enumerate(found["rows"]["group"]) if groups is None or group < groups]
    return {**found, "rows": {name: [values[n] for n in keep] for name, values in found["rows"].items()}}


def _trainer(arm: Arm, preset: str, seed: int, common: Mapping[str, Any], at: Sequence[int]) -> Any:
    from rlkit.trainers.factory import trainer

    run = arm.run(preset, seed, common)
    overrides = {**run.overrides, "record_steps": [step for step in at if step]}
    own = {"model": run.model, "task": run.task, "reward": run.reward, "teacher": run.teacher}
    return trainer(run.method, preset=preset, seed=seed, **own, **overrides)


def _steps(trainer: Any, at: Sequence[int], prompts: Sequence[Any] | None) -> list[Step]:
    from transformers import PrinterCallback

    from rlkit.runs.training import StopAfter

    trainer.remove_callback(PrinterCallback)
    found = {0: trainer.preview(prompts)} if 0 in at else {}
    if max(at) > 0:
        if max(at) > trainer.args.max_steps:
            raise ValueError(f"at={max(at)} lies behind the end of the run, which has {trainer.args.max_steps} steps.")
        trainer.add_callback(StopAfter(max(at) + 1))  # the last one is seen while it is taken
        trainer.train()
        found |= trainer.steps
    return [found[step] for step in at]

"""Slow motion in a notebook: steps and comparisons that a study caches, records, and reads back in recorded mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlkit import runs
from rlkit.recorded import Recorded, described_arm

if TYPE_CHECKING:
    from rlkit.method import Method


class SlowMotion:
    """What `rlkit.Study` shows of single steps."""

    preset: str
    common: dict[str, Any]
    recorded: bool
    _kept: Recorded

    if TYPE_CHECKING:  # what Study has

        def _data(self) -> Recorded: ...

        def _flush(self) -> None: ...

    def preview(
        self,
        method: runs.Arm | str | Method,
        at: int | Sequence[int] = 0,
        *,
        seed: int = 0,
        groups: int | None = 2,
        prompts: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Any:
        """`trainer.preview` of an arm of this study, recorded with it.

        Args:
            method: an arm, a method's name or a method.
            at: optimiser steps done before the step that is shown, or several such numbers; those behind 0 train an
                extra run as far as the last one.
            seed: of the run.
            groups: how many prompts' rollouts to keep; None for all.
            prompts: rows of the training data, as for `trainer.preview`.
            settings: of the method, where no arm is given.

        Returns:
            A `Step`, or a list of them where `at` is one.

        Raises:
            NotRecorded: in recorded mode, a step that was not recorded like this.

        """
        from rlkit.steps.made import previewed
        from rlkit.steps.step import Step

        arm, numbers = _one_arm(method, settings), [at] if isinstance(at, int) else list(at)
        if not numbers or not all(isinstance(n, int) and n >= 0 for n in numbers) or (prompts and max(numbers)):
            raise ValueError(f"study.preview: at= is a step from 0 on or several ({at!r}); prompts= go with at=0 only.")
        if groups is not None and groups < 1:
            raise ValueError(f"study.preview: groups is how many prompts to show, at least 1, not {groups}.")
        place = {"arm": arm, "preset": self.preset, "seed": seed, "common": self.common}
        found = self._slow(previewed, arm, {**place, "at": numbers, "groups": groups, "prompts": prompts})
        how = (arm, seed, groups, prompts)
        steps = [dataclasses.replace(Step.from_dict(saved), source=how) for saved in found]
        return steps[0] if isinstance(at, int) else steps

    def compare(self, step: Any, methods: Sequence[str]) -> Any:
        """`rlkit.compare` on a step that this study's `preview` gave before training, recorded with it.

        Raises:
            ValueError: another step.
            NotRecorded: in recorded mode, a comparison that was not recorded like this.
        """
        from rlkit.steps.compare import Comparison
        from rlkit.steps.made import compared

        if step.step or not isinstance(step.source, tuple):
            raise ValueError("study.compare takes a step of study.preview(...) with at=0.")
        arm, seed, groups, prompts = step.source
        place = {"arm": arm, "preset": self.preset, "seed": seed, "common": self.common}
        given = {**place, "methods": list(methods), "groups": groups, "prompts": prompts}
        return Comparison.from_dict(self._slow(compared, arm, given))

    def _slow(self, function: Callable[..., Any], arm: runs.Arm, given: Mapping[str, Any]) -> Any:
        """A measurement that runs a trainer: what determines a run of the arm counts for its key."""
        name = function.__name__
        said = {**given, "arm": {"label": arm.label, **described_arm(arm)}, "preset": None}
        if self.recorded:
            return self._data().measure(name, said)
        own = {**given, "key": runs.run_key(arm, self.preset, given["seed"], self.common)}
        value = runs.measure(function, progress=False, **own)
        self._kept.add_measure(name, said, runs.measure_key(function, own), value)
        self._flush()
        return value


def _one_arm(method: runs.Arm | str | Method, settings: Mapping[str, Any]) -> runs.Arm:
    if isinstance(method, runs.Arm) and settings:
        raise ValueError(f"Arm {method.label!r} has its settings: give them there, not {', '.join(settings)} here.")
    return method if isinstance(method, runs.Arm) else runs.arm(method, **settings)

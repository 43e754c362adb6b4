"""The part of a notebook that trains a real pretrained model: with the presets `small` and `gpu`, and only there.

With those presets a notebook's tiny part is read from what is recorded, as its figures are committed, and its arms for
the real model are trained. With all other presets it is the other way round: what a run with `--record` left in
`data/recorded/SLUG/PRESET` is shown. That folder is no part of the evidence: few seeds, no claims.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlkit import paths, runs
from rlkit.claims import ENOUGH_SEEDS
from rlkit.presets import get_preset
from rlkit.recorded import NotRecorded, Recorded, kept
from rlkit.runs.arms import TIERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlkit.runs.table import Runs

RECORDED = "small"
"""The preset whose runs are shown where nothing is trained: anybody can run it, without a GPU or a hub."""
FIGURE = "real_model"
RUNNING = 5
"""Steps of a running mean: the reward of 16 rollouts jumps from step to step."""


class RealModel:
    """What `rlkit.Study` does with a real model."""

    slug: str
    preset: str
    seeds: Any
    real_common: dict[str, Any]
    recorded: bool
    output: Path

    if TYPE_CHECKING:  # what Study has

        def figure(self, name: str, figure: Figure, caption: str = "") -> None:
            """Save and show."""

    def real_model(
        self,
        arms: Mapping[str, Sequence[runs.Arm]],
        metrics: Sequence[str] = ("accuracy",),
        *,
        title: str,
        keep: Sequence[str] = (),
    ) -> Runs | None:
        """Train a notebook's arms for a real model, or show what was recorded of them; draws the figure `real_model`.

        Args:
            arms: preset (`small`, `gpu`) to its arms; the notebook's parameter `model` replaces theirs.
            metrics: one panel each, against optimiser steps.
            title: what the figure asks.
            keep: further metrics that are recorded.

        Returns:
            The runs; None where nothing is trained or recorded: then it says which command trains.

        Raises:
            ValueError: the preset trains a real model and has no arms here.
        """
        found = self._real_runs(arms, list(dict.fromkeys([*metrics, *keep])))
        if found is None:
            print(f"Nothing is recorded here. On a GPU: rlkit figures {self.slug} --preset gpu")
            return None
        preset, done = found
        self.figure(FIGURE, _drawn(done, metrics, title, self._about(preset, done, arms)))
        return done

    def _real_runs(self, arms: Mapping[str, Sequence[runs.Arm]], keep: list[str]) -> tuple[str, Runs] | None:
        if get_preset(self.preset).real:
            if self.preset not in arms:
                raise ValueError(f"{self.slug}: no arms for preset {self.preset!r}, only for {', '.join(arms)}.")
            return self.preset, self._train_real(arms[self.preset], keep)
        try:
            data = Recorded.read(paths.recorded(self.slug) / RECORDED, self.slug)
            frames = [data.runs(arm) for arm in arms.get(RECORDED, ())]
        except NotRecorded:
            return None
        if not frames:
            return None
        frame = kept(pd.concat(frames, ignore_index=True), keep).assign(source="run")  # the caption says it
        return RECORDED, runs.Runs(list(arms[RECORDED]), frame, pd.DataFrame(columns=frame.columns))

    def _train_real(self, arms: Sequence[runs.Arm], keep: list[str]) -> Runs:
        """Runs of this preset; their metrics are recorded where `--record` asks for it."""
        mine = [dataclasses.replace(arm, settings={**arm.settings, **self.real_common}) for arm in arms]
        done = runs.run(mine, preset=self.preset, seeds=self.seeds, tiers=TIERS)
        done.frame = kept(done.frame, keep)
        if os.environ.get("RLKIT_RECORD") == "1":
            data = Recorded(self.slug, self.preset, milliseconds=done.milliseconds)
            data.add_runs(mine, done.frame, done.keys)
            data.write(paths.recorded(self.slug, write=True) / self.preset)
        return done

    def _about(self, preset: str, done: Runs, arms: Mapping[str, Sequence[runs.Arm]]) -> str:
        """Which model was trained, and what so few runs can show."""
        model = self.real_common.get("model") or next(
            (arm.settings["model"] for arm in arms[preset] if "model" in arm.settings), get_preset(preset).model
        )
        seeds = done.frame["seed"].nunique()
        few = " Too few to rank the arms: a demonstration." if seeds < ENOUGH_SEEDS else ""
        here = "Trained" if preset == self.preset else "Recorded"
        return f"{here}: {model}, preset {preset}, {seeds} seed{'s' * (seeds != 1)}.{few}"


def _drawn(done: Runs, metrics: Sequence[str], title: str, about: str) -> Figure:
    """One panel a metric. Under five seeds each seed is a line: an interval over so few would fill the panel."""
    from rlkit import plots

    few = done.frame["seed"].nunique() < ENOUGH_SEEDS
    figure, axes = plots.panels(len(metrics), 1, height=0.6 + 2.9 * len(metrics))
    for metric, axis in zip(metrics, axes, strict=True):
        smooth = 1 if metric == "accuracy" else RUNNING
        plots.curves(done.frame, metric, roles=done.roles, smooth=smooth, band=not few, ax=axis)
    running = f" All but accuracy: running mean of {RUNNING} steps." if set(metrics) != {"accuracy"} else ""
    return plots.finish(figure, title, about + (" Thin: single seeds. Thick: their mean." if few else "") + running)

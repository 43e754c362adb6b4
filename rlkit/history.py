"""Accuracy of every single example while runs trained: which were solved early, late, never, or now and then.

Every run stores how many rollouts of each example it drew in each step and how many were right (its table
`examples`). An example is named by the data set's column `id`, or by a hash of its prompt where there is none. Counted
is what the present policy drew to train on: no evaluation, nothing replayed, no expert's solution.

An example has no value in a step that did not draw it. Gaps stay gaps here: nothing is filled in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rlkit.method import near

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlkit.runs.table import Runs

KEY = ["arm", "seed", "id"]
"""What one history is of."""


def examples(runs: Runs, arm: str | None = None) -> pd.DataFrame:
    """One row per logging step and example that was drawn in it: arm, seed, step, id, rollouts, right, reward.

    Args:
        runs: what `rlkit.run` gave.
        arm: only this arm; all by default.

    Returns:
        `right` is the number of exactly right rollouts, whatever the reward (NaN without gold answers); `reward` the
        mean weighted reward of those that could be scored (NaN where none could).

    Raises:
        ValueError: no such arm, or runs without the table, such as recorded ones.
    """
    table = runs.table("examples")
    if arm is None:
        return table
    labels = list(table["arm"].unique())
    if arm not in labels:
        raise ValueError(f"No history of an arm {arm!r}. {near(arm, labels)}")
    return table[table["arm"] == arm].reset_index(drop=True)


def accuracy(runs: Runs, arm: str | None = None) -> pd.DataFrame:
    """Share of right rollouts of each example in each logging step that drew it.

    Args:
        runs: what `rlkit.run` gave.
        arm: only this arm; all by default.

    Returns:
        Columns arm, seed, id, step, rollouts, accuracy; sorted by them.

    Raises:
        ValueError: as for `examples`; a task without gold answers.
    """
    table = examples(runs, arm)
    if table["right"].isna().all():
        raise ValueError("The accuracy of examples needs gold answers, and the data of these runs have none.")
    table = table.assign(accuracy=table["right"] / table["rollouts"])
    columns = [*KEY, "step", "rollouts", "accuracy"]
    return table.sort_values([*KEY, "step"], kind="stable")[columns].reset_index(drop=True)


def variance(runs: Runs, arm: str | None = None) -> pd.DataFrame:
    """How much the accuracy of each example moved over a run: what one-shot RLVR selects examples by.

    The variance over steps is the population's, `mean((a - mean(a))^2)` (arXiv 2504.20571, its historical variance
    score); an example that was drawn in one step only has 0.

    Args:
        runs: what `rlkit.run` gave.
        arm: only this arm; all by default.

    Returns:
        One row per arm, seed and id: visits (steps that drew it), rollouts, mean, var and std over those steps.

    Raises:
        ValueError: as for `accuracy`.
    """
    groups = accuracy(runs, arm).groupby(KEY, sort=True)
    values = groups["accuracy"]
    table = pd.DataFrame({
        "visits": values.size(),
        "rollouts": groups["rollouts"].sum(),
        "mean": values.mean(),
        "var": values.var(ddof=0),
    })  # fmt: skip
    return table.assign(std=np.sqrt(table["var"])).reset_index()


def windowed(history: pd.DataFrame, windows: int = 10) -> pd.DataFrame:
    """A history as a table, examples by windows of steps: right rollouts over rollouts, then the mean over seeds.

    Args:
        history: one arm's rows of `accuracy`.
        windows: the run is cut into so many windows of equal length, fewer where it has fewer steps.

    Returns:
        Index id; columns the last step of each window; NaN where no seed drew the example.
    """
    last = int(history["step"].max())
    width = -(-last // max(1, min(windows, last)))
    ends = ((history["step"] - 1) // width + 1) * width
    part = history.assign(window=ends.clip(upper=last), right=history["accuracy"] * history["rollouts"])
    sums = part.groupby(["seed", "id", "window"])[["right", "rollouts"]].sum()
    mean = (sums["right"] / sums["rollouts"]).groupby(["id", "window"]).mean()
    return mean.unstack("window").reindex(columns=[*range(width, last, width), last])


def heat(
    runs: Runs,
    arm: str | None = None,
    *,
    windows: int = 10,
    most: int = 24,
    title: str = "",
    note: str = "",
) -> Figure:
    """A heat map of the accuracy of examples over a run: those solved most at the top, an empty cell was not drawn.

    Args:
        runs: what `rlkit.run` gave.
        arm: which arm; needed where there are several.
        windows: how many windows of steps to average over.
        most: how many examples to show: those that were drawn in most windows.
        title: the finding.
        note: a sentence to add to the caption.

    Raises:
        ValueError: as for `accuracy`; several arms, and none is named.
    """
    from rlkit import plots

    history = accuracy(runs, arm)
    if len(labels := list(history["arm"].unique())) > 1:
        raise ValueError(f"A heat map shows one arm: name it with arm=. There are {', '.join(map(repr, labels))}.")
    table = windowed(history, windows)
    shown = table.loc[table.notna().sum(axis=1).sort_values(ascending=False, kind="stable").index[:most]]
    shown = shown.loc[shown.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    figure, (panel,) = plots.panels(height=1.5 + 0.21 * len(shown))
    plots.heat(
        shown,
        xlabel="optimiser steps, up to",
        ylabel="example",
        value="right rollouts (share)",
        span=(0.0, 1.0),
        digits=1,
        ax=panel,
    )
    return plots.finish(figure, title or f"Accuracy of single examples, {labels[0]}", _caption(history, shown, note))


def _caption(history: pd.DataFrame, shown: pd.DataFrame, note: str) -> str:
    seeds, known = history["seed"].nunique(), history["id"].nunique()
    mean = f"Mean over those of {seeds} seeds that drew it. " if seeds > 1 else "1 seed. "
    part = f"{len(shown)} of {known} examples, those drawn most often." if len(shown) < known else ""
    return f"{mean}An empty cell: not drawn in these steps. {part} {note}".strip()

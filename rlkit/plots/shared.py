"""What all figures share: the colours of roles, labels, panels, title and caption, names at the ends of lines."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rlkit.plots.pictures import HEIGHT, WIDTH, Picture, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#56b4e9")
"""seaborn's "colorblind" palette without its grey (a role here) and its pale pink and yellow (too faint for lines)."""
GREYS = {"baseline": ("#4d4d4d", "-"), "control": ("#767676", "--")}
AGAIN: dict[str, tuple[Any, ...]] = {"-": ("-", "-.", ":"), "--": ("--", (0, (1.5, 1)), (0, (8, 2)))}
"""Line styles of the first, second and third arm of one colour."""
MARKERS = "osD^vPX"

LABELS = {
    "step": "optimiser steps",
    "accuracy": "accuracy (share of test prompts)",
    "rollout_accuracy": "exact rollouts (share)",
    "generated_tokens": "generated tokens",
    "trained_tokens": "trained tokens",
    "reward": "mean reward",
    "entropy": "entropy (nats per token)",
    "grad_norm": "gradient norm",
    "completions/mean_length": "completion length (tokens)",
    "frac_reward_zero_std": "groups with equal rewards (share)",
}
"""Axis labels, with units, of the metrics that every run has."""


def look(roles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Line style of each arm: `{arm: {"color", "linestyle", "marker"}}`.

    Args:
        roles: arm to role: `method`, `baseline`, `control` or `variant`, in the order of the arms.
    """
    colours = iter(PALETTE * (1 + len(roles) // len(PALETTE)))
    first = [arm for arm, role in roles.items() if role == "method"][:1]
    chosen = {arm: next(colours) for arm in [*first, *(a for a in roles if a not in first and roles[a] not in GREYS)]}
    looks: dict[str, dict[str, Any]] = {}
    for number, (arm, role) in enumerate(roles.items()):
        colour, line = GREYS.get(role, (chosen.get(arm), "-"))
        before = sum(look["color"] == colour for look in looks.values())
        dashes = AGAIN[line][before % len(AGAIN[line])]
        looks[arm] = {"color": colour, "linestyle": dashes, "marker": MARKERS[number % len(MARKERS)]}
    return looks


def panels(rows: int = 1, columns: int = 1, *, height: float = HEIGHT) -> tuple[Picture, list[Axes]]:
    """An empty figure and its axes, row by row. Stack panels in rows: side by side they are too small at 400 pixels.

    Args:
        rows: panels from top to bottom.
        columns: panels from left to right.
        height: inches of the whole figure; the width stays `WIDTH`.
    """
    with style():
        figure = Picture(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def finish(figure: Figure, title: str = "", note: str = "") -> Figure:
    """Put the title over a figure and the caption under it, wrapped to its width."""
    width, height = figure.get_size_inches()
    with style():
        if title:
            figure.suptitle(textwrap.fill(title, round(width * 10.8)), x=0.015, ha="left")
        if note:
            text = textwrap.fill(note, round(width * 14))
            room = 0.155 * (text.count("\n") + 1) / height
            figure.text(0.015, 0.02, text, ha="left", va="bottom", fontsize=9, color="#444444")
            figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0, room + 0.02, 1, 1 - room - 0.02)))
    return figure


def caption(frame: pd.DataFrame, *, by: str = "arm", over: str = "seed", extra: str = "") -> str:
    """The sentence under a figure: what mean and band are taken over, and how many.

    Args:
        frame: tidy rows with the columns `by` and `over`, and perhaps `source` ("run" or "recorded").
        by: what a line is.
        over: what the interval is taken over.
        extra: a sentence to add.
    """
    counts = sorted({int(part[over].nunique()) for _, part in frame.groupby(by, sort=False)})
    spread = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    number = f"{spread} {over}{'' if counts == [1] else 's'}"
    words = f"{number}, no interval." if counts == [1] else f"Mean and 95 % interval over {number}."
    return f"{words} {extra}".strip()


def title_from_verdict(
    verdict: str, *, supported: str, refuted: str, question: str, inconclusive: str | None = None
) -> str:
    """The finding in words, chosen by the verdict; a preliminary verdict (under 5 seeds) only asks the question.

    Args:
        verdict: `supported`, `refuted` or `inconclusive`, perhaps with the prefix `preliminary`.
        supported: title when the claim holds.
        refuted: title when it fails.
        question: title under 5 seeds.
        inconclusive: title when the interval covers the threshold; the question and "no answer yet" by default.
    """
    titles = {"supported": supported, "refuted": refuted}
    titles["inconclusive"] = inconclusive or f"{question} These seeds do not decide it"
    word = verdict.split()[-1]
    if word not in titles:
        raise ValueError(f"A verdict is supported, refuted or inconclusive, not {verdict!r}.")
    return question if verdict.startswith("preliminary") else titles[word]


def label_ends(panel: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Names at the right of the lines, moved apart where they would overlap; a legend where there is no room."""
    gap = 0.085
    names = {name: textwrap.fill(name, 17) for name in ends}
    if sum(gap * (1 + text.count("\n")) for text in names.values()) > 1.1:
        panel.figure.legend(*panel.get_legend_handles_labels(), loc="outside right upper", fontsize=9)
        return
    panel.set_ylim(*panel.get_ylim())
    panel.set_xlim(*panel.get_xlim())
    to_axes = panel.transScale + panel.transLimits
    spots = {name: tuple(to_axes.transform(end[:2])) for name, end in ends.items()}
    for name, height in _apart(spots, {n: gap * (1 + t.count("\n")) for n, t in names.items()}).items():
        colour, (right, own) = ends[name][2], spots[name]
        ink = tuple(0.72 * part for part in to_rgb(colour))  # thin letters need more contrast than thick lines
        panel.text(1.035, height, names[name], transform=panel.transAxes, color=ink, va="center", fontsize=9)
        panel.plot([right, 1.02], [own, height], transform=panel.transAxes, color=colour, lw=0.7, clip_on=False)


def _apart(spots: Mapping[str, Sequence[float]], heights: Mapping[str, float]) -> dict[str, float]:
    """Heights of labels (axes fraction) in the order of the line ends, no two closer than their own heights."""
    order = sorted(spots, key=lambda name: (spots[name][1], name))
    placed = {name: float(np.clip(spots[name][1], 0, 1)) for name in order}
    for _ in range(200):
        for below, above in itertools.pairwise(order):
            lack = (heights[below] + heights[above]) / 2 - (placed[above] - placed[below])
            if lack > 1e-6:
                placed[below] -= lack / 2
                placed[above] += lack / 2
    return placed


def start(ax: Axes | None, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """The given axes with their figure, or a new figure of one panel."""
    if ax is not None:
        return ax.get_figure(root=True), ax  # type: ignore[return-value]
    figure, (panel,) = panels(height=height)
    return figure, panel


def close(figure: Figure, panel: Axes, ax: Axes | None, title: str, xlabel: str, ylabel: str, note: str) -> Figure:
    """Labels, and title and caption: of the figure if it is ours, of the panel if it was given."""
    with style():
        panel.set_xlabel(xlabel)
        panel.set_ylabel(ylabel)
        if ax is not None:
            panel.set_title(textwrap.fill(title, 52))
            return figure
    return finish(figure, title, note)

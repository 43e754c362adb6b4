"""The pictures that notebooks draw: colour says the role, every mean has its 95 % interval, the caption says over what.

Each function takes tidy data and returns a figure; with `ax=` it draws one panel of a figure of yours (`panels`).
Roles: the baseline is grey, a control dashed grey, the notebook's method blue, further arms follow in order.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import EngFormatter, MaxNLocator

from rlkit.plots.pictures import HEIGHT, save, style
from rlkit.plots.shared import (
    LABELS,
    PALETTE,
    caption,
    close,
    finish,
    label_ends,
    look,
    panels,
    start,
    title_from_verdict,
)
from rlkit.stats import interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["caption", "curves", "finish", "heat", "histogram", "lines", "look", "panels", "points", "save", "style"]
__all__ += ["title_from_verdict"]


def curves(frame: pd.DataFrame, metric: str, *, x: str = "step", smooth: int = 1, **options: Any) -> Figure:
    """Learning curves: mean and 95 % interval band over seeds of one metric, against steps or any cost.

    Args:
        frame: columns `arm, seed, step, metric, value`, perhaps `source`.
        metric: what goes up the y axis.
        x: `step`, or a metric that grows (`generated_tokens`); the mean over seeds at the same step is its position.
        smooth: average over so many logged values of a seed before the mean over seeds.
        options: as for `lines` (`roles`, `title`, `ylabel`, `ax`, ...).

    Raises:
        ValueError: the frame has no such metric.
    """
    part = _metric(frame, metric)
    if smooth > 1:
        part["value"] = part.groupby(["arm", "seed"])["value"].transform(lambda v: v.rolling(smooth, 1).mean())
        options.setdefault("extra", f"Running mean of {smooth} values.")
    part["x"] = part["step"] if x == "step" else _costs(_metric(frame, x), part)
    options.setdefault("xlabel", LABELS.get(x, x))
    options.setdefault("ylabel", LABELS.get(metric, metric))
    return lines(part, x="x", y="value", at="step", **options)


def _metric(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    part = frame[frame["metric"] == metric]
    if part.empty:
        from rlkit.method import near

        raise ValueError(f"No metric {metric!r} in these runs. {near(metric, list(frame['metric'].unique()))}")
    return part.sort_values(["arm", "seed", "step"], kind="stable").copy()


def _costs(cost: pd.DataFrame, part: pd.DataFrame) -> np.ndarray:
    """The cost of each row of `part`, read off its own run's cost curve, which is 0 at step 0."""
    values = np.empty(len(part))
    own = {key: rows for key, rows in cost.groupby(["arm", "seed"])}
    for key, rows in part.groupby(["arm", "seed"]).indices.items():
        steps = np.concatenate([[0.0], own[key]["step"]]) if key in own else np.array([0.0])
        spent = np.concatenate([[0.0], own[key]["value"]]) if key in own else np.array([np.nan])
        values[rows] = np.interp(part["step"].to_numpy()[rows], steps, spent)
    return values


def lines(
    frame: pd.DataFrame,
    *,
    x: str,
    y: str,
    at: str | None = None,
    by: str = "arm",
    over: str = "seed",
    roles: Mapping[str, str] | None = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    logx: bool = False,
    level: float | None = None,
    extra: str = "",
    band: bool = True,
    ax: Axes | None = None,
) -> Figure:
    """One line per `by`: the mean of `y` over `over` at each `x`, with its 95 % t interval as a band.

    Args:
        frame: tidy rows with the columns named here, perhaps `source`.
        x: column of positions.
        y: column of values.
        at: column that says which rows belong to one point; `x` itself by default.
        by: column of lines.
        over: column whose values the interval is taken over: seeds, prompts.
        roles: line to role, in the order to draw; all `variant`s in order of appearance by default.
        title: the finding.
        xlabel: axis label with its unit.
        ylabel: axis label with its unit.
        logx: logarithmic x axis, ticks at the values themselves.
        level: a horizontal reference line, dotted.
        extra: a sentence for the caption.
        band: False for a thin line a seed in place of the interval, which over two seeds would fill the panel.
        ax: draw there, without caption; the title becomes the panel's.
    """
    roles = roles or dict.fromkeys(frame[by].unique(), "variant")
    figure, panel = start(ax)
    looks, ends = look(roles), {}
    with style():
        if level is not None:
            panel.axhline(level, color="#222222", linewidth=0.9, linestyle=":")
        for name in (name for name in roles if (frame[by] == name).any()):
            part = frame[frame[by] == name]
            table = np.array([_point(rows, x, y) for _, rows in part.groupby(at or x)])
            _line(panel, table, looks[name], str(_label(name, part, over)), band)
            for _, rows in () if band else part.groupby(over):
                panel.plot(rows[x], rows[y], color=looks[name]["color"], alpha=0.45, linewidth=0.8)
            ends[str(_label(name, part, over))] = (table[-1, 0], table[-1, 1], looks[name]["color"])
        _x_axis(panel, frame[x].to_numpy(float), logx)
        label_ends(panel, ends)
    return close(figure, panel, ax, title, xlabel, ylabel, caption(frame, by=by, over=over, extra=extra))


def _point(rows: pd.DataFrame, x: str, y: str) -> tuple[float, float, float, float]:
    """Position, mean, lower and upper end; a single value is its own interval."""
    return (_short(rows[x].mean()), *spread(rows[y]))


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval of what is not NaN, to 6 digits; a single value is its own interval."""
    known = np.asarray(list(values), float)
    known = known[~np.isnan(known)]
    if len(known) < 2:
        return (_short(known.mean() if len(known) else np.nan),) * 3
    mean, low, high = interval(known)
    return _short(mean), _short(low), _short(high)


def _short(value: float) -> float:
    return float(f"{value:.6g}") + 0.0  # no minus zero


def _line(panel: Axes, table: np.ndarray, looks: Mapping[str, Any], label: str, band: bool) -> None:
    few = len(table) <= 12
    panel.plot(table[:, 0], table[:, 1], label=label, **{**looks, "marker": looks["marker"] if few else None})
    if band:
        panel.fill_between(table[:, 0], table[:, 2], table[:, 3], color=looks["color"], alpha=0.18, linewidth=0)


def _label(name: str, part: pd.DataFrame, over: str) -> str:
    """The name of a line, and that it was recorded rather than run just now, if so."""
    if "source" not in part or not (part["source"] == "recorded").all():
        return name
    return f"{name} (recorded, {part[over].nunique()} {over}s)"


def _x_axis(panel: Axes, values: np.ndarray, logx: bool) -> None:
    if logx:
        ticks = sorted({float(v) for v in values})
        panel.set_xscale("log")
        panel.minorticks_off()
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    else:
        panel.xaxis.set_major_locator(MaxNLocator(5))
        if np.nanmax(values) >= 10_000:
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def points(
    values: Mapping[str, Sequence[float]],
    *,
    roles: Mapping[str, str] | None = None,
    zero: float | None = 0.0,
    title: str = "",
    xlabel: str = "",
    over: str = "seed",
    extra: str = "",
    ax: Axes | None = None,
) -> Figure:
    """One row per name: its values as small dots, their mean with its 95 % interval, and a line at `zero`.

    Args:
        values: name to the values (paired differences, one a seed), from top to bottom.
        roles: name to role, for colour; all in the method's colour by default.
        zero: where the vertical line stands; None for none.
        title: the finding.
        xlabel: axis label with its unit.
        over: what the values are, one a `seed` or a `prompt`.
        extra: a sentence for the caption.
        ax: draw there, without caption.
    """
    rows = max(len(values), 2)
    figure, panel = start(ax, height=min(HEIGHT + 0.35 * max(rows - 4, 0), 8))
    looks = look(roles or dict.fromkeys(values, "method"))
    with style():
        if zero is not None:
            panel.axvline(zero, color="#222222", linewidth=1)
        for row, (name, numbers) in enumerate(values.items()):
            colour = PALETTE[0] if roles is None else looks[name]["color"]
            mean, low, high = spread(numbers)
            panel.plot([_short(v) for v in numbers], [row + 0.22] * len(numbers), "|", color=colour, markersize=6)
            panel.plot([low, high], [row, row], color=colour, linewidth=2.2, solid_capstyle="butt")
            panel.plot([mean], [row], "o", color=colour, markersize=6.5)
        panel.set_yticks(range(len(values)), [textwrap.fill(name, 20) for name in values])
        panel.set_ylim(len(values) - 0.5, -0.6)
        panel.grid(axis="y", visible=False)
        panel.xaxis.set_major_locator(MaxNLocator(5))
    counts = sorted({len(list(v)) for v in values.values()})
    note = f"Ticks: single {over}s. Dot, bar: mean and 95 % interval over {' to '.join(map(str, counts))} {over}s."
    return close(figure, panel, ax, title, xlabel, "", f"{note} {extra}".strip())


def heat(
    table: pd.DataFrame,
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    value: str = "",
    centre: float | None = None,
    span: tuple[float, float] | None = None,
    digits: int = 2,
    note: str = "",
    ax: Axes | None = None,
) -> Figure:
    """A heat map with each number written in its cell; a cell without a number stays empty.

    Args:
        table: index down, columns across.
        title: the finding.
        xlabel: what the columns are, with the unit.
        ylabel: what the index is, with the unit.
        value: what the numbers are, with the unit: beside the colour bar.
        centre: the number that has no colour (0 for differences): orange below, purple above; None for one-sided.
        span: the numbers at the two ends of the colours; None for those of the table. Not with `centre`.
        digits: decimals in the cells.
        note: the caption.
        ax: draw there, without caption.
    """
    figure, panel = start(ax)
    numbers = np.vectorize(_short)(table.to_numpy(float))
    with style():
        limits: dict[str, Any] = {"cmap": "cividis", **dict(zip(("vmin", "vmax"), span or (), strict=False))}
        if centre is not None:
            far = max(float(np.nanmax(np.abs(numbers - centre))), 1e-12)
            limits = {"cmap": "PuOr", "vmin": centre - far, "vmax": centre + far}
        image = panel.imshow(numbers, aspect="auto", **limits)
        for (row, column), number in np.ndenumerate(numbers):
            red, green, blue, _ = image.cmap(image.norm(number))
            ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "black"
            sign = "+" if centre is not None else ""
            text = "" if np.isnan(number) else f"{round(number, digits) + 0.0:{sign}.{digits}f}"
            panel.text(column, row, text, ha="center", va="center", color=ink, fontsize=9)
        panel.set_xticks(range(table.shape[1]), [_tick(c) for c in table.columns])
        panel.set_yticks(range(table.shape[0]), [_tick(i) for i in table.index])
        panel.grid(visible=False)
        figure.colorbar(image, ax=panel, label=value)
    return close(figure, panel, ax, title, xlabel, ylabel, note)


def _tick(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def histogram(
    values: Mapping[str, Sequence[float]],
    *,
    bins: int = 30,
    roles: Mapping[str, str] | None = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "share",
    note: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Outlined histograms on shared bins; the height is the share of a name's values that falls into the bin.

    Args:
        values: name to its values.
        bins: number of bins between the smallest and the largest value of all.
        roles: name to role, for colour and line style.
        title: the finding.
        xlabel: axis label with its unit.
        ylabel: share of what.
        note: the caption.
        ax: draw there, without caption.
    """
    figure, panel = start(ax)
    looks = look(roles or dict.fromkeys(values, "variant"))
    arrays = {name: np.asarray(numbers, float) for name, numbers in values.items()}
    edges = np.linspace(min(a.min() for a in arrays.values()), max(a.max() for a in arrays.values()), bins + 1)
    with style():
        for name, numbers in arrays.items():
            counts, _ = np.histogram(numbers, edges)
            shown = {key: looks[name][key] for key in ("color", "linestyle")}
            panel.stairs(counts / len(numbers), edges, label=name, linewidth=1.6, **shown)
            panel.stairs(counts / len(numbers), edges, fill=True, color=shown["color"], alpha=0.12)
        panel.legend(fontsize=9)
    return close(figure, panel, ax, title, xlabel, ylabel, note)

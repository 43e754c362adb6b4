"""A slider over a picture: choose a value and see it drawn, with all values side by side where nothing can be moved.

Exports (HTML, PDF, a page on GitHub) and notebooks that a program executes have no live widgets. So the static picture
of all values is always shown; the slider stands above it where a person may be at the notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[["Axes", Any], None]
"""Draws one value on axes."""


class Slider:
    """What `slider` gives: shown by being the last line of a cell."""

    def __init__(self, draw: Draw, name: str, values: Sequence[Any], title: str, note: str) -> None:
        if not values:
            raise ValueError("A slider needs at least one value.")
        self.draw, self.name, self.values = draw, name, list(values)
        self.title, self.note = title, note
        self._limits: tuple[Any, Any] | None = None

    def figure(self, *values: Any) -> Figure:
        """The picture of some values, one panel under the other; of all by default. All share their limits."""
        from rlkit import plots

        chosen = values or tuple(self.values)
        figure, axes = plots.panels(len(chosen), 1, height=1.0 + 1.7 * len(chosen))
        for panel, value in zip(axes, chosen, strict=True):
            with plots.style():
                self.draw(panel, value)
                panel.set_title(f"{self.name} = {value}")
        self._limits = self._limits or _widest(axes)
        for panel in axes:
            panel.set(xlim=self._limits[0], ylim=self._limits[1])
        return plots.finish(figure, self.title, self.note)

    def box(self) -> Any:
        """The widget: a slider above the picture of its value."""
        import ipywidgets  # type: ignore[import-untyped]

        from rlkit.plots.pictures import render

        self.figure()  # fixes the limits, so that nothing jumps
        pictures = {str(value): render(self.figure(value), "png", dpi=110) for value in self.values}
        chooser = ipywidgets.SelectionSlider(
            options=[(str(value), str(value)) for value in self.values],
            description=self.name,
            style={"description_width": "initial"},
        )
        picture = ipywidgets.Image(value=pictures[chooser.value], format="png")

        def chosen(change: Any) -> None:
            picture.value = pictures[change["new"]]

        chooser.observe(chosen, names="value")
        return ipywidgets.VBox([chooser, picture])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        from rlkit.exercises import strict

        if not strict():
            display(self.box())
        display(self.figure())

    def __repr__(self) -> str:
        return f"A slider over {self.name} = {', '.join(map(str, self.values))}; it is shown in a notebook."


def slider(draw: Draw, name: str, values: Sequence[Any], *, title: str = "", note: str = "") -> Slider:
    """A slider over the values of something, and the picture of each.

    Args:
        draw: `draw(axes, value)` draws one value.
        name: what is chosen, with its letter: "group size G".
        values: what can be chosen, in order.
        title: over the picture.
        note: the caption.

    Raises:
        ValueError: no values.
    """
    return Slider(draw, name, values, title, note)


def _widest(axes: Sequence[Axes]) -> tuple[tuple[float, float], tuple[float, float]]:
    x, y = zip(*[panel.get_xlim() for panel in axes], strict=True), zip(*[p.get_ylim() for p in axes], strict=True)
    (x0, x1), (y0, y1) = x, y
    return _span(x0, x1), _span(y0, y1)


def _span(starts: Sequence[float], ends: Sequence[float]) -> tuple[float, float]:
    """The widest interval; an axis that runs downwards stays so."""
    return (max(starts), min(ends)) if starts[0] > ends[0] else (min(starts), max(ends))

"""Figures as files: one style, and the same bytes for the same data.

Left out on purpose: pyplot and its global state. A `Picture` is an ordinary `matplotlib.figure.Figure`.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text
from PIL import Image

from rlkit.files import write_all

WIDTH, HEIGHT = 4.8, 3.2
"""Inches. At 400 pixels wide the 9 point labels are still about 10 pixels high."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "figure.titlesize": 10.5,
    "figure.titleweight": "bold",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.constrained_layout.w_pad": 0.06,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "figure.facecolor": "white",  # stated, so that a dark page shows a white card and not dark text on dark
    "savefig.facecolor": "white",
    "svg.fonttype": "path",  # glyphs as outlines: nobody needs the font, and no viewer moves a label
    "svg.hashsalt": "rlkit",
    "text.hinting": "none",
    "path.simplify": False,
    "axes.formatter.use_mathtext": False,
}


@contextmanager
def style() -> Iterator[None]:
    """The figure style as a context: matplotlib's defaults and ours on top, whatever the user's matplotlibrc says."""
    left = ("backend", "backend_fallback", "interactive", "text.hinting_factor")  # not ours to set; deprecated
    chosen: dict[str, Any] = {str(k): v for k, v in matplotlib.rcParamsDefault.items() if k not in left}
    chosen.update(STYLE)
    with matplotlib.rc_context(chosen):  # type: ignore[arg-type]  # the stub wants each name as a literal
        yield


class Picture(Figure):
    """A matplotlib figure that notebooks can show without pyplot."""

    def _repr_png_(self) -> bytes:
        return render(self, "png", dpi=110)


def render(figure: Figure, kind: str, dpi: int = 200) -> bytes:
    """The bytes of a figure as `svg` or `png`: no dates, no versions, coordinates rounded."""
    for text in figure.findobj(Text):
        _as_written(text)
    metadata: dict[str, Any] = {"Software": None}
    if kind == "svg":
        metadata = {"Date": None, "Creator": None, "Title": figure.get_suptitle().replace("\n", " ")}
    out = io.BytesIO()
    _back_to_start(figure)
    with style():
        figure.savefig(out, format=kind, dpi=dpi, metadata=metadata)
    return _rounded(out.getvalue()) if kind == "svg" else _small(out.getvalue())


def _as_written(text: Any) -> None:
    """Labels come from users and data: no control characters, and `$` is a formula only where it is one."""
    found = text.get_text()
    odd = {c for c in found if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Cn")}
    for character in odd:
        found = found.replace(character, character.encode("unicode_escape").decode())
    if odd:
        text.set_text(found)
    if is_math_text(found) and not _parses(found):
        text.set_parse_math(False)


def _parses(text: str) -> bool:
    try:
        MathTextParser("path").parse(text)
    except ValueError:
        return False
    return True


def _back_to_start(figure: Figure) -> None:
    """Put panels where they were before the first drawing.

    The layout engine starts from the last layout, so that a figure that was shown before it was saved would differ.
    """
    starts = figure.__dict__.setdefault("_rlkit_starts", {})
    for panel in figure.axes:
        start = starts.setdefault(panel, panel.get_position(original=True).frozen())
        panel._set_position(start)  # type: ignore[attr-defined]  # set_position would take it out of the layout


def _small(png: bytes) -> bytes:
    """The same picture with a palette of 192 colours: a third of the size, and a repository keeps every version."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(out, "png", optimize=True)
    return out.getvalue()


def _rounded(svg: bytes) -> bytes:
    """Coordinates to 3 decimals (of a point, 1/72 inch), so that the last bits of a sum do not show in the file."""
    number = re.compile(rb"-?\d+\.\d{4,}")

    def shorten(attribute: re.Match[bytes]) -> bytes:
        return number.sub(lambda found: b"%.3f" % float(found.group()), attribute.group())

    return re.sub(rb'\b(?:d|x|y|x1|y1|x2|y2|width|height)="[^"]*"', shorten, svg)


def save(figure: Figure, path_stem: str | Path) -> list[Path]:
    """Write `path_stem.svg` and `path_stem.png`, both or neither.

    The same data gives the same bytes in every process on Linux x86-64 with the project's constraints.

    Args:
        figure: any matplotlib figure.
        path_stem: where to, without the suffix; missing folders are made.

    Returns:
        The two paths.

    Raises:
        OSError: the folder cannot be written to; nothing is left half-written. The message says what to do.
    """
    stem = Path(path_stem)
    pictures = {stem.with_name(f"{stem.name}.{kind}"): render(figure, kind) for kind in ("svg", "png")}
    write_all(pictures)
    return list(pictures)

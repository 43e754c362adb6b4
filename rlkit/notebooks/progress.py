"""What a person sees while notebooks run: one bar each in a terminal, else one line at a time, and never too many."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from typing import Any, TextIO

LINES = 200
"""At most so many lines a notebook without a terminal."""
PAUSE = 1.0
"""Seconds between two lines of one notebook without a terminal."""
PROGRESS = re.compile(r"\d\s?%|\bruns?\b.*\b(to do|done)\b|^failed:")
"""What is passed on from the kernel; its other lines, such as warnings of libraries, are in the executed notebook."""


class Watch:
    """The progress of one notebook; also the file that the kernel's stderr goes to.

    Args:
        slug: the notebook.
        cells: how many it has.
        position: the bar's line, for notebooks in parallel.
        stream: where to; stderr by default.
    """

    def __init__(self, slug: str, cells: int, *, position: int = 0, stream: TextIO | None = None) -> None:
        self.slug, self.cells, self.stream = slug, cells, stream or sys.stderr
        self.started, self.last = time.monotonic(), -PAUSE
        self.number = self.said = 0
        self.rest = ""
        self.bar: Any = None
        if self.stream.isatty():
            from tqdm import tqdm

            shape = "{desc} |{bar:20}| {elapsed}{postfix}"
            options: dict[str, Any] = {"position": position, "bar_format": shape, "dynamic_ncols": True}
            self.bar = tqdm(total=cells, desc=slug, file=self.stream, **options)
        else:
            self._print("running")

    def cell(self, number: int) -> None:
        """Cell `number` (from 1) begins."""
        self.number = number
        if self.bar is not None:
            self._draw("")

    def write(self, text: str) -> int:
        """Text from the kernel: what follows a carriage return or a line break replaces what was there."""
        *whole, self.rest = (self.rest + text).replace("\r", "\n").split("\n")
        self.rest = self.rest[-500:]
        lines = [line.strip() for line in whole if PROGRESS.search(line.strip())]
        if lines and self.bar is not None:
            self._draw(lines[-1])
        elif lines and self.said < LINES and time.monotonic() - self.last >= PAUSE:
            self.said, self.last = self.said + 1, time.monotonic()
            self._print(lines[-1][:160])
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def _draw(self, line: str) -> None:
        """Move the bar: a line with a percentage says how far the cell is."""
        share = re.search(r"\b(\d{1,3})\s?%", line)
        self.bar.n = self.number - 1 + (min(int(share.group(1)), 100) / 100 if share else 0)
        self.bar.set_postfix_str(f"cell {self.number} of {self.cells}  {line[:70]}".rstrip())

    def end(self, message: str) -> None:
        """The notebook is over."""
        if self.bar is not None:
            self.bar.leave = False
            self.bar.close()
        self._print(message)

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more: no reason to lose the run
            print(f"{self.slug} [{time.monotonic() - self.started:.0f} s] {line}", file=self.stream, flush=True)

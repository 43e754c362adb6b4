"""How far a grid of runs is: one bar with the time left, or, without a terminal, now and then a line."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, TextIO

LINES = 20
"""At most about so many lines a grid without a terminal."""
PAUSE = 5.0
"""Seconds between two lines."""
MODES = ("bar", "lines", "off")


def mode_of(progress: bool | str, stream: TextIO) -> str:
    """`RLKIT_PROGRESS`, else a bar in terminals and notebooks, else lines.

    Raises:
        ValueError: unknown mode.
    """
    wanted = progress if isinstance(progress, str) else os.environ.get("RLKIT_PROGRESS") or ""
    if wanted and wanted not in MODES:
        raise ValueError(f"Progress is one of {', '.join(MODES)}, not {wanted!r}.")
    if progress is False:
        return "off"
    return wanted or ("bar" if stream.isatty() or "ipykernel" in sys.modules else "lines")


class Progress:
    """The progress of one grid, in optimiser steps; a context manager.

    Args:
        total: steps of all runs that have to be done.
        runs: their number.
        name: what the bar is called.
        progress: True, False, or one of `MODES`.
        stream: where to; stderr by default.
    """

    def __init__(
        self, total: int, runs: int, name: str, progress: bool | str = True, stream: TextIO | None = None
    ) -> None:
        self.stream = stream or sys.stderr
        self.mode = mode_of(progress, self.stream) if runs else "off"
        self.total, self.runs, self.name = max(total, 1), runs, name
        self.steps = self.finished = 0
        self.started = self.moving = time.monotonic()
        self.said, self.share = -PAUSE, 0.0
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if self.mode == "bar":
            from tqdm.auto import tqdm

            self.bar = tqdm(total=self.total, desc=self.name, unit="step", file=self.stream, smoothing=0.05)
        elif self.mode == "lines":
            self._say(f"{self.name}: {self.runs} run{'s' * (self.runs > 1)} to do")
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.mode == "lines":
            took = time.monotonic() - self.started
            self._say(f"{self.name}: {self.finished} of {self.runs} runs done in {clock(took)}")

    def update(self, steps: int, finished: int) -> None:
        """So many steps and runs are done by now."""
        steps = min(max(steps, self.steps), self.total)
        if self.bar is not None:
            self.bar.set_postfix_str(f"{finished}/{self.runs} runs", refresh=False)
            self.bar.update(steps - self.steps)
        if not self.steps:
            self.moving = time.monotonic()  # workers that start take seconds which say nothing about the runs
        self.steps, self.finished = steps, finished
        now, share = time.monotonic(), steps / self.total
        if self.mode == "lines" and now - self.said >= PAUSE and share - self.share >= 1 / LINES and share < 1:
            self.said, self.share = now, share
            left = (now - self.moving) * (1 - share) / share
            self._say(f"{self.name}: {share:.0%}, {finished} of {self.runs} runs, about {clock(left)} left")

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more: no reason to lose the runs
            print(line, file=self.stream, flush=True)

    def tell(self, line: str) -> None:
        """A line beside the bar, such as a failed run."""
        if self.mode == "off":
            return
        if self.bar is not None:
            self.bar.write(line, file=self.stream)
        else:
            self._say(line)


def clock(seconds: float) -> str:
    """Seconds as people say them: 45 s, 3 min 20 s."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"

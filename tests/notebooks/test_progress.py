"""What a person sees while a notebook runs."""

from __future__ import annotations

import io

import pytest

from rlkit import notebook_progress
from rlkit.notebook_progress import LINES, Watch


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_it_is_one_line_at_a_time_and_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_progress, "PAUSE", 0.0)
    stream = io.StringIO()
    watch = Watch("demo", 3, stream=stream)
    for number in range(10_000):
        watch.write(f"step {number}\r")
    watch.write("a line in ")
    watch.write("two parts\n" + "x" * 10_000 + "\n")
    watch.end("done")
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["demo [0 s] running", "demo [0 s] step 0"]
    assert lines[-1] == "demo [0 s] done"
    assert len(lines) == LINES + 2
    assert max(map(len, lines)) < 200


def test_quick_lines_are_thinned_out() -> None:
    stream = io.StringIO()
    watch = Watch("demo", 3, stream=stream)
    for number in range(1000):
        watch.write(f"step {number}\n")
    assert stream.getvalue().splitlines() == ["demo [0 s] running", "demo [0 s] step 0"]


def test_in_a_terminal_it_is_a_bar_that_follows_cells_and_percentages() -> None:
    stream = _Terminal()
    watch = Watch("demo", 4, stream=stream)
    watch.cell(3)
    assert watch.bar.n == 2
    watch.write("accuracy: 50%, 3 of 6 runs, about 20 s left\n")
    assert watch.bar.n == 2.5
    watch.end("done")
    shown = stream.getvalue()
    assert "cell 3 of 4  accuracy: 50%, 3 of 6 runs, about 20 s left" in shown
    assert shown.count("\n") == 1, "one line stays: how it ended"

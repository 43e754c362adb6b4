"""What a person sees while a notebook runs."""

from __future__ import annotations

import io

import pytest

from rlkit.notebooks import progress as notebook_progress
from rlkit.notebooks.progress import LINES, Watch


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_it_is_one_line_at_a_time_and_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_progress, "PAUSE", 0.0)
    stream = io.StringIO()
    watch = Watch("demo", 3, stream=stream)
    for number in range(10_000):
        watch.write(f"{number}% done\r")
    watch.write("a line in ")
    watch.write("two parts, 5% done\n" + "9% " * 10_000 + "\nwarning: from a library\n")
    watch.end("done")
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["demo [0 s] running", "demo [0 s] 0% done"]
    assert lines[-1] == "demo [0 s] done"
    assert len(lines) == LINES + 2
    assert max(map(len, lines)) < 200


def test_warnings_of_libraries_are_not_passed_on() -> None:
    stream = io.StringIO()
    watch = Watch("demo", 3, stream=stream)
    watch.write("FutureWarning: something is deprecated\n")
    watch.write("runs: 4 runs to do\n")
    assert stream.getvalue().splitlines() == ["demo [0 s] running", "demo [0 s] runs: 4 runs to do"]


def test_quick_lines_are_thinned_out() -> None:
    stream = io.StringIO()
    watch = Watch("demo", 3, stream=stream)
    for number in range(1000):
        watch.write(f"{number}% done\n")
    assert stream.getvalue().splitlines() == ["demo [0 s] running", "demo [0 s] 0% done"]


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

"""Where a benchmark's table goes: between two marks of `benchmarks/README.md`, and some of it into the summary."""

from __future__ import annotations

import importlib
import platform
from dataclasses import dataclass, field
from pathlib import Path

README = Path(__file__).with_name("README.md")
HEADER = ["| what | measured | part |", "|---|---|---|"]


@dataclass(frozen=True)
class Report:
    """What a part of the benchmark found."""

    text: str
    """Its tables, in Markdown."""
    summary: list[tuple[str, str]] = field(default_factory=list)
    """(what, measured): its lines in the summary."""


def measure(part: str, quick: bool) -> Report:
    """What a part's file finds; it is called in a process of its own, which cannot reach `__main__`."""
    found = importlib.import_module(f"benchmarks.{part}").report(quick)
    assert isinstance(found, Report)
    return found


def between(name: str) -> tuple[str, str, str]:
    """What stands before the marks of this name, between them and behind them.

    Raises:
        ValueError: the README has no such marks.
    """
    old = README.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if begin not in old or end not in old:
        raise ValueError(f"{README} has no marks {begin} and {end}: add them where the table is to stand.")
    before, rest = old.split(begin)
    inside, after = rest.split(end)
    return f"{before}{begin}\n", inside.strip(), f"\n{end}{after}"


def write(name: str, text: str) -> None:
    """Put a table between the marks of this name; everything else stays."""
    before, _, after = between(name)
    README.write_text(f"{before}{text}{after}", encoding="utf-8", newline="\n")


def summarise(part: str, lines: list[tuple[str, str]], order: tuple[str, ...]) -> None:
    """Replace a part's lines of the summary; those of the others stay, in the order of the parts."""
    _, old, _ = between("summary")
    rows = [row for row in old.splitlines()[len(HEADER) :] if row.startswith("|")]
    kept = [row for row in rows if not row.endswith(f"| `{part}` |")]
    new = [f"| {what} | {measured} | `{part}` |" for what, measured in lines]
    places = {f"`{name}`": place for place, name in enumerate(order)}
    rows = sorted(kept + new, key=lambda row: places.get(row.split("|")[-2].strip(), len(places)))
    write("summary", "\n".join([*HEADER, *rows]))


def about() -> str:
    """Software and machine, for the line under a table."""
    import torch
    import trl

    software = f"torch {torch.__version__}, TRL {trl.__version__}, Python {platform.python_version()}"
    return f"{software}, {platform.system()} {platform.machine()}, one thread"

"""Where a benchmark's table goes: between two marks of `benchmarks/README.md`."""

from __future__ import annotations

import platform
from pathlib import Path

README = Path(__file__).with_name("README.md")


def write(name: str, text: str) -> None:
    """Put a table between the marks of this name; everything else stays.

    Raises:
        ValueError: the README has no such marks.
    """
    old = README.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if begin not in old or end not in old:
        raise ValueError(f"{README} has no marks {begin} and {end}: add them where the table is to stand.")
    before, rest = old.split(begin)
    README.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8", newline="\n")


def about() -> str:
    """Software and machine, for the line under a table."""
    import torch
    import trl

    software = f"torch {torch.__version__}, TRL {trl.__version__}, Python {platform.python_version()}"
    return f"{software}, {platform.system()} {platform.machine()}, one thread"

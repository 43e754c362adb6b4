"""Which releases of TRL and transformers rlkit is tested with, and a warning where others are installed.

`make drift` runs the tests behind the ranges; its table is in CONTRIBUTING.md.
"""

from __future__ import annotations

import functools
import warnings

TESTED = {"trl": ">=1.16,<1.17", "transformers": ">=5.24,<5.25"}
"""The ranges of pyproject.toml."""
BROKEN = {"trl": {"==1.15.*": "without triton, as on a CPU, its own trainers fail: _ChunkedLogProbFunction is None"}}
"""Releases that do not work at all, and why."""


def complaints() -> list[str]:
    """One line for each library whose installed release is not among the tested ones. Imports neither library."""
    from importlib import metadata

    from packaging.specifiers import SpecifierSet

    found = []
    for name, tested in TESTED.items():
        have = metadata.version(name)
        if SpecifierSet(tested).contains(have, prereleases=True):
            continue
        reasons = [why for those, why in BROKEN.get(name, {}).items() if SpecifierSet(those).contains(have)]
        why = f" ({reasons[0]})" if reasons else ""
        found.append(f'{name} {have} is installed{why}; rlkit is tested with {tested}: pip install "{name}{tested}"')
    return found


@functools.cache
def warn_once() -> None:
    """Warn about releases that are not tested, the first time that this process asks."""
    for line in complaints():
        warnings.warn(line, stacklevel=2)

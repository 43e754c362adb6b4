"""Whether two trajectories are the same up to rounding: the largest difference, and what is left in the mean.

A difference that stays small at every step but always points the same way is no rounding, and no bound on the largest
difference sees it. So the residuals are averaged too, in two ways: as they are (something was added) and along the sign
of the reference (something was multiplied). All are relative, so that one tolerance does for all metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Trajectories = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Tolerance:
    """What is taken for rounding, relative."""

    largest: float
    mean: float
    """Of the mean residual and of the mean growth."""


@dataclass(frozen=True)
class Residual:
    """How a metric differs from its reference over a trajectory."""

    largest: float
    """The largest |difference|, over the larger of the step's |reference| and the mean |reference|."""
    at: int
    """The step of the largest difference; 1 is the first."""
    mean: float
    """Mean difference over the mean |reference|: above 0 where something is added at each step."""
    growth: float
    """Mean of difference x sign(reference) over the mean |reference|: b where each value is (1 + b) times too large."""


def residual(found: Sequence[float], reference: Sequence[float]) -> Residual:
    """Compare two series of equal length.

    Raises:
        ValueError: lengths differ, or a value is not finite.

    """
    if len(found) != len(reference):
        raise ValueError(f"{len(found)} steps are compared with {len(reference)}.")
    if not all(map(math.isfinite, [*found, *reference])):
        raise ValueError("A value is not finite.")
    differences = [f - r for f, r in zip(found, reference, strict=True)]
    size = sum(map(abs, reference)) / len(reference) or 1.0  # a reference of zeros: differences as they are
    relative = [abs(d) / max(abs(r), size) for d, r in zip(differences, reference, strict=True)]
    grown = sum(math.copysign(d, d * r) if r else 0.0 for d, r in zip(differences, reference, strict=True))
    count, largest = len(reference) * size, max(relative)
    return Residual(largest, relative.index(largest) + 1, sum(differences) / count, grown / count)


def differences(found: Trajectories, reference: Trajectories, tolerance: Tolerance) -> list[str]:
    """What is not equal up to rounding, one line for each metric and kind of difference."""
    told = [f"{name} is in one of them only" for name in sorted(found.keys() ^ reference.keys())]
    for name in sorted(found.keys() & reference.keys()):
        got = residual(found[name], reference[name])
        if got.largest > tolerance.largest:
            told.append(f"{name}: off by {got.largest:.1e} at step {got.at}, largest allowed {tolerance.largest:.1e}")
        for kind, value in (("mean residual", got.mean), ("mean growth", got.growth)):
            if abs(value) > tolerance.mean:
                told.append(f"{name}: {kind} {value:+.1e} over all steps, allowed {tolerance.mean:.1e}")
    return told

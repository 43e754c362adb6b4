"""Values that no run can have: refused in a sentence before a kernel starts or anything trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlkit import notebooks, paths
from rlkit.notebooks import Options
from tests.notebooks.conftest import make, workspace

__all__ = ["make", "workspace"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("seeds", "-1", "a number of seeds or a list of them, not -1"),
        ("seeds", "[]", "not []"),
        ("seeds", "[0, -3]", "not [0, -3]"),
        ("lr", "abc", "parameter lr=1e-05 is of type float; 'abc' is not"),
        ("preset", "nosuch", "no preset 'nosuch'"),
    ],
    ids=["negative seeds", "no seeds", "a negative seed", "no number", "no preset"],
)
def test_refused_before_a_kernel_starts(make: Callable[..., Path], name: str, value: str, told: str) -> None:
    make("raise AssertionError('a kernel ran')")
    outcome = notebooks.run("demo", Options({name: value}))
    assert not outcome.ok and told in outcome.message, outcome.message
    assert not paths.build().exists()

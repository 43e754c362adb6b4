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
        ("modell", "nosuch", "unknown parameter 'modell'. "),
    ],
    ids=["negative seeds", "no seeds", "a negative seed", "no number", "no preset", "no such parameter"],
)
def test_refused_before_a_kernel_starts(make: Callable[..., Path], name: str, value: str, told: str) -> None:
    make("raise AssertionError('a kernel ran')")
    outcome = notebooks.run("demo", Options({name: value}))
    assert not outcome.ok and told in outcome.message, outcome.message
    assert not paths.build().exists()


REFUSED = {
    "no number": (["grpo", "-p", "max_steps=abc"], "Setting 'max_steps': 'abc' is not a valid"),
    "negative group": (["grpo", "-p", "num_generations=-1"], "num_generations is -1: a group of one has no baseline."),
    "no setting": (["grpo", "-p", "max_stepz=3"], "'max_steps'"),
    "no task": (["grpo", "--task", "chian"], "There is no task 'chian'. Did you mean 'chain'"),
    "no preset": (["grpo", "--preset", "smokee"], "'smoke'"),
    "no method": (["mcgrpo"], "There is no method 'mcgrpo'. Did you mean 'mc_grpo'"),
}


@pytest.mark.parametrize(("call", "told"), REFUSED.values(), ids=REFUSED)
def test_rlkit_train_refuses_before_it_writes(tmp_path: Path, call: list[str], told: str) -> None:
    from typer.testing import CliRunner

    from rlkit.cli import app

    out = tmp_path / "run"
    preset = [] if "--preset" in call else ["--preset", "smoke"]
    got = CliRunner().invoke(app, ["train", *call, *preset, "--out", str(out)])
    assert got.exit_code == 1 and got.stderr.startswith("error: ") and told in got.stderr, got.output
    assert not out.exists()

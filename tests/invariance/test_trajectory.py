"""Fifty steps of four methods are what they were when they were recorded, on any machine.

Tolerances: what rounding does was measured on an AMD EPYC by training with other arithmetic, AVX2 against
`ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41`. Over 50 steps with AdamW the largest
difference of all metrics and methods was 2.4e-5 (the gradient norm), the largest mean 1.1e-6 (the way of a norm's
weights); with two threads nothing differed. About ten times that is allowed, for machines of other makes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlkit.method import Context, get_method
from rlkit.methods.grpo import standardized
from tests.invariance.closeness import Tolerance, differences
from tests.invariance.record import STEPS, read
from tests.invariance.scripted import RUNS, Trajectory, script, train

TOLERANCE = Tolerance(largest=3e-4, mean=1e-5)
SOME, FEW = 20, 10
"""Steps of the quick comparison, and of the runs that have to fail. The rate is constant: no schedule sees the end."""


def _first(steps: int, name: str) -> Trajectory:
    return {metric: values[:steps] for metric, values in read(name).items()}


@pytest.mark.parametrize("steps", [SOME, pytest.param(STEPS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RUNS)
def test_steps_are_those_that_were_recorded(name: str, steps: int, tmp_path: Path, one_thread: Any) -> None:
    found, reference = train(name, tmp_path, steps), _first(steps, name)
    assert found["trained_tokens"] == reference["trained_tokens"]
    assert differences(found, reference, TOLERANCE) == []


def test_the_recorded_runs_learn_something() -> None:
    """A trajectory that stands still would hide a lot: the reward rises, the divergence falls, gradients are there."""
    for name in RUNS:
        run = read(name)
        assert min(run["grad_norm"]) > 0 and run["moved"][-1] > 5 * run["moved"][0]
        curve = run.get("reward") or [-value for value in run["divergence"]]
        assert sum(curve[-10:]) > sum(curve[:10])


# The suite can fail ----------------------------------------------------------------------------------------------


def _against_the_record(found: Trajectory, name: str) -> list[str]:
    return differences(found, _first(FEW, name), TOLERANCE)


def _scaled(factor: float, folder: Path) -> list[str]:
    """GRPO whose advantages are restated and multiplied."""

    def advantage(ctx: Context) -> Any:
        assert ctx.rewards is not None
        return factor * standardized(ctx.rewards)

    method = dataclasses.replace(get_method("grpo"), advantage=advantage)
    return _against_the_record(train("grpo", folder, FEW, method=method), "grpo")


def test_advantages_restated_are_the_record(tmp_path: Path, one_thread: Any) -> None:
    assert _scaled(1.0, tmp_path) == []


def test_an_advantage_that_is_one_per_cent_too_large_is_caught_by_both_checks(tmp_path: Path, one_thread: Any) -> None:
    told = "\n".join(_scaled(1.01, tmp_path))
    for found in ("loss: off by", "loss: mean growth +1.0e-02", "grad_norm: off by", "grad_norm: mean growth +1.0e-02"):
        assert found in told, told


def test_a_bias_of_1e_4_is_caught_by_the_mean_alone(tmp_path: Path, one_thread: Any) -> None:
    told = _scaled(1.0001, tmp_path)
    assert any(line.startswith("grad_norm: mean growth +1.0e-04") for line in told)
    assert not any("off by" in line for line in told)


def _counts_every_row(trainer: Any) -> None:
    """The median's pivots are in the denominator: 5 rows a group in place of 4."""
    inner = trainer._set_denominators

    def wrong(out: Any, changed: bool) -> None:
        inner(out, changed)
        out["counted_per_micro_batch"] = out["counted_per_micro_batch"] * 0 + len(out["counted"])

    trainer._set_denominators = wrong


def _one_token_too_many(trainer: Any) -> None:
    """Tokens that count are one more than there are."""
    inner = trainer._set_denominators

    def wrong(out: Any, changed: bool) -> None:
        inner(out, changed)
        out["num_items_in_batch"] = out["num_items_in_batch"] + 1

    trainer._set_denominators = wrong


@pytest.mark.parametrize(
    ("name", "spoil"),
    [("mc_grpo", _counts_every_row), ("replay_uniform", _one_token_too_many)],
    ids=["rows that are left out", "one token too many"],
)
def test_a_wrong_denominator_is_caught(
    name: str, spoil: Callable[[Any], None], tmp_path: Path, one_thread: Any
) -> None:
    def prepare(trainer: Any) -> None:
        script(trainer)
        spoil(trainer)

    told = _against_the_record(train(name, tmp_path, FEW, prepare), name)
    assert any(line.startswith("loss: off by") for line in told)
    assert any(line.startswith("grad_norm: mean growth -") for line in told)


def test_a_learning_rate_that_is_one_per_mille_too_large_is_caught(tmp_path: Path, one_thread: Any) -> None:
    """Loss and gradient hardly know it yet: the weights do."""
    told = _against_the_record(train("mc_grpo", tmp_path, FEW, learning_rate=1.001e-4), "mc_grpo")
    assert any(line.startswith("moved: mean growth +1.0e-03") for line in told)

"""One process or two (gloo): the same scripted rollouts are trained to the same weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.scripted import METHODS, PROMPTS

pytestmark = pytest.mark.slow
ROUNDING = 1e-6
"""Sums of 32-bit floats in another order, after three steps at a learning rate of 1e-2."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What one process saw, and what each of two saw."""
    folder = tmp_path_factory.mktemp("scripted")
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    two = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone"]
    for name, launch in (("one", []), ("two", two)):
        place = [str(folder / name), str(folder / f"{name}-files")]
        command = [sys.executable, *launch, "-m", "tests.trainers.scripted", *place]
        run = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
        )
        assert run.returncode == 0, run.stderr[-4000:]
    read = {name: sorted(folder.glob(f"{name}.*")) for name in ("one", "two")}
    assert [len(files) for files in read.values()] == [1, 2]
    return {name: [json.loads(path.read_text(encoding="utf-8")) for path in files] for name, files in read.items()}


def steps_of(runs: dict[str, list[Any]], method: str) -> Any:
    """For each step what one process saw, and what two saw, rank by rank."""
    return zip(runs["one"][0][method]["steps"], *(rank[method]["steps"] for rank in runs["two"]), strict=True)


def joined(ranks: list[Any], what: str) -> list[Any]:
    return [value for rank in ranks for value in rank[what]]


@pytest.mark.parametrize("method", ["grpo", "mc_grpo", "tip"])
def test_the_weights_are_those_of_one_process(runs: dict[str, list[Any]], method: str) -> None:
    one, two = runs["one"][0][method], [rank[method] for rank in runs["two"]]
    assert two[0]["weights"] == two[1]["weights"]
    differences = [a - b for a, b in zip(one["weights"], two[0]["weights"], strict=True)]
    assert max(map(abs, differences)) < ROUNDING
    assert abs(sum(differences) / len(differences)) < ROUNDING / 100  # no drift to one side
    for ours, theirs in zip(two[0]["logged"], one["logged"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=ROUNDING)


@pytest.mark.parametrize("method", ["grpo", "mc_grpo"])
def test_advantages_kept_rows_and_denominators_are_those_of_one_process(
    runs: dict[str, list[Any]], method: str
) -> None:
    for one, *two in steps_of(runs, method):
        assert joined(two, "row") == one["row"]
        assert joined(two, "counted") == one["counted"]
        assert joined(two, "advantage") == pytest.approx(one["advantage"], abs=ROUNDING)
        assert {rank["items"] for rank in two} == {one["items"]}
        assert {2 * rank["per_micro_batch"] for rank in two} == {one["per_micro_batch"]}
        assert sum(one["counted"]) == PROMPTS * 4  # the median's own rollout of each prompt has left


def test_replayed_rows_keep_their_ratio_and_none_is_lost(runs: dict[str, list[Any]]) -> None:
    """Each process draws old rows from its own: which ones differs, what is known of a row does not."""
    scored: dict[str, float] = {}
    for step, (one, *two) in enumerate(steps_of(runs, "replay_uniform")):
        rows, ages, old = (joined(two, what) for what in ("row", "drawn_at", "old"))
        assert sorted(ages) == sorted(one["drawn_at"]) and len(rows) == 16 * (1 + bool(step))
        fresh = [row for row, age in zip(rows, ages, strict=True) if age == step]
        assert fresh == [row for row, age in zip(one["row"], one["drawn_at"], strict=True) if age == step]
        if step == 0:
            scored = dict(zip(one["row"], one["old"], strict=True))
        for row, age, logp in zip(rows, ages, old, strict=True):
            if age == 0:
                assert logp == pytest.approx(scored[row], abs=1e-4)
        tokens = sum(len(row.partition("/-1/")[2].split("/")) for row in rows)
        assert {rank["items"] for rank in two} == {float(tokens)}
        assert {2 * rank["per_micro_batch"] for rank in two} == {float(len(rows))}


@pytest.mark.parametrize("method", [name for name in METHODS if name in ("exgrpo", "repo")])
def test_methods_that_put_old_rows_into_a_group_train_on_two_processes(runs: dict[str, list[Any]], method: str) -> None:
    two = [rank[method] for rank in runs["two"]]
    assert two[0]["weights"] == two[1]["weights"]
    assert all(norm > 0 for _, norm, *_ in two[0]["logged"])

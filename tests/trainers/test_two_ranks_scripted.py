"""One process and two (gloo) with the same rollouts and the same global batch train the same model.

Tolerance: float32 sums of a step are taken in another order (40 rows, or 20 and 20), an error of about 1e-7 a sum, and
three steps of plain SGD add up such errors. Weights may differ by 1e-5 of the largest movement; what is no sum of
floats (kept rows, denominators, counts) is equal, and advantages are to the 6 digits that are compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("two_ranks_scripted")
    root = Path(__file__).parents[2]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone"]
    command = [sys.executable, *launch, "-m", "tests.trainers.two_ranks_scripted", str(folder / "out"), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    run = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return [json.loads((folder / f"out.{rank}").read_text(encoding="utf-8")) for rank in (0, 1)]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.trainers import two_ranks_scripted as scripted

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {part.__name__: part(tmp_path_factory.mktemp("one")) for part in scripted.PARTS}
    torch.set_num_threads(threads)
    return json.loads(json.dumps(found))


@pytest.mark.parametrize("name", ["grpo", "mc_grpo", "opd", "tip"])
def test_two_processes_train_what_one_trains(one: Any, two: Any, name: str) -> None:
    alone, (first, second) = one[name], (rank[name] for rank in two)
    assert first == second
    moved, expected = torch.tensor(first["moved"]), torch.tensor(alone["moved"])
    assert expected.abs().max() > 1e-3
    assert (moved - expected).abs().max() < 1e-5 * expected.abs().max()
    for found, wanted in zip(first["logs"], alone["logs"], strict=True):
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["grpo", "mc_grpo"])
def test_advantages_kept_rows_and_denominators_are_those_of_one_process(one: Any, two: Any, name: str) -> None:
    for found, wanted in zip(two[0][name]["batches"], one[name]["batches"], strict=True):
        assert len(found["advantages"]) == 40
        assert found["advantages"] == pytest.approx(wanted["advantages"], abs=2e-6)
        assert found["counted"] == wanted["counted"]
        assert found["counted"].count(False) == (8 if name == "mc_grpo" else 0)  # the pivot of each group of 5
        assert found["num_items_in_batch"] == wanted["num_items_in_batch"]
        assert 2 * found["counted_per_micro_batch"] == wanted["counted_per_micro_batch"]


def test_greedy_rollouts_of_distillation_are_those_of_one_process(one: Any, two: Any) -> None:
    def lengths(run: Any) -> Any:
        return [[sum(row) for row in batch["completion_mask"]] for batch in run["opd"]["batches"]]

    assert lengths(two[0]) == lengths(one) and len(lengths(one)[0]) == 16


def test_replay_loses_no_row_and_divides_by_the_rows_of_both(one: Any, two: Any) -> None:
    """Each process draws from the rows that it has stored, so which rows are old differs from one process."""
    shards = [rank["replay"]["own"] for rank in two]
    for step, parts in enumerate(zip(*shards, strict=True)):
        alone = one["replay"]["own"][step]
        for part in parts:
            assert part["lost"] == 0 and part["fresh"] == part["new"] == 20
            assert part["off"] < 1e-6  # the ratio of an old row is to the policy that drew it
        for count in ("fresh", "new", "old"):
            assert sum(part[count] for part in parts) == alone[count]
        batch = two[0]["replay"]["batches"][step]
        rows = sum(part["new"] + part["old"] for part in parts)
        assert batch["num_items_in_batch"] == sum(part["tokens"] for part in parts)
        assert batch["counted_per_micro_batch"] == rows / 2
    assert one["replay"]["own"][-1]["old"] == 40
    assert shards[0] != shards[1]


@pytest.mark.parametrize("name", ["exgrpo", "repo", "lowest_entropy"])
def test_replay_in_groups_runs_on_two_processes(two: Any, name: str) -> None:
    (logs, stored, weights), second = two[0]["group_replay"][name], two[1]["group_replay"][name]
    assert second[1:] == [stored, weights]  # what is stored is equal, and so are the models
    assert max(share for *_, share, _ in logs) > 0 and all(norm > 0 for _, norm, *_ in logs)
    assert stored == logs[-1][-1] > 0

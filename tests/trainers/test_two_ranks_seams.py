"""The seams on two processes (gloo)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("two_ranks_seams")
    root = Path(__file__).parents[2]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone"]
    command = [sys.executable, *launch, "-m", "tests.trainers.two_ranks_seams", str(folder / "out"), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    run = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return [json.loads((folder / f"out.{rank}").read_text(encoding="utf-8")) for rank in (0, 1)]


def near(found: Any, expected: Any, tolerance: float = 1e-6) -> Any:
    return [pytest.approx(line, rel=tolerance, abs=tolerance) for line in expected] == found


def test_every_seam_at_once_restated_is_stock(results: Any) -> None:
    for loss, (stock, own, pooled) in results[0]["identity"].items():
        assert near(own, stock) and near(pooled, stock), loss
        assert max(norm for _, norm, *_ in stock) > 0.01


def test_ranks_may_have_other_numbers_of_rows(results: Any) -> None:
    for name, (found, expected) in results[0]["ragged"].items():
        assert found == pytest.approx(expected, rel=5e-6, abs=1e-6), name


def test_a_pooled_statistic_is_over_both_ranks(results: Any) -> None:
    (whole, parts), seen = results[0]["pooled"]
    assert near(parts, whole) and whole[0][1] > 0.01
    assert results[1]["pooled"][1] == seen and [rows for rows, *_ in seen] == [32] * 4


def test_memory_in_every_seam_resumes_and_is_as_equal_as_it_should_be(results: Any) -> None:
    for rank in results:
        whole, rest = rank["memory"]
        assert whole == rest
    one, two = (rank["memory"][0] for rank in results)
    assert one[1] == two[1] and one[2] == two[2]  # rates and calls: the hooks saw the rows of both
    assert one[3] != two[3]  # the buffer of rows is each rank's own
    names = {"rlkit_state.json", "rlkit_state.safetensors", "rlkit_state_1.json", "rlkit_state_1.safetensors"}
    assert set(results[0]["files"]) == names


def test_a_methods_reward_and_advantage_see_the_rows_of_both_ranks(results: Any) -> None:
    (reward, advantage), texts, logged, anywhere = results[0]["rewards"]
    assert reward[1:] == [32, 32, 32] and advantage[0] == reward[0]
    assert advantage[1] == [float(i) for i in range(32)]
    assert results[1]["rewards"][0] == results[0]["rewards"][0]
    assert texts and logged == [[32, 0]] and anywhere == [True, False] * 2


def test_a_process_with_a_part_of_a_group_is_an_error_for_a_rollout_hook(results: Any) -> None:
    for rank, rows in enumerate(("0 to 15", "16 to 31")):
        assert f"a process needs whole groups, and rows {rows} hold a part" in results[rank]["cut"]

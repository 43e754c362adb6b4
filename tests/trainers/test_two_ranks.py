"""Two processes (gloo), as `accelerate launch` would start them."""

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
    folder = tmp_path_factory.mktemp("two_ranks")
    root = Path(__file__).parents[2]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone"]
    command = [sys.executable, *launch, "-m", "tests.trainers.two_ranks", str(folder / "out"), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    run = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return [json.loads((folder / f"out.{rank}").read_text(encoding="utf-8")) for rank in (0, 1)]


def test_there_are_two_processes(results: list[dict[str, Any]]) -> None:
    assert [r["world"] for r in results] == [2, 2]


def test_leaving_rows_out_is_stock_trl_on_two_ranks(results: list[dict[str, Any]]) -> None:
    for name, (stock, ours, left_out) in results[0]["identity"].items():
        assert sum(share for (share,) in left_out) > 0.5, name
        for found, expected in zip(ours, stock, strict=True):
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-6), name


def test_denominators_count_the_rows_of_both_ranks(results: list[dict[str, Any]]) -> None:
    for loss, (found, expected) in results[0]["kept"].items():
        assert found == pytest.approx(expected, rel=2e-6, abs=1e-6), loss


def test_a_resumed_run_is_the_same_run_and_memory_is_equal_on_both_ranks(results: list[dict[str, Any]]) -> None:
    for rank in results:
        whole, rest = rank["resumed"]
        assert whole == rest
    assert results[0]["resumed"][0][-1] == results[1]["resumed"][0][-1]


def test_collected_rewards_are_the_same_on_both_ranks(results: list[dict[str, Any]]) -> None:
    rewards, charged, tokens = results[0]["collected"]
    assert len(rewards) == 12 and charged == tokens
    assert results[0]["collected"] == results[1]["collected"]


def test_looking_changes_nothing_and_each_rank_sees_its_rows(results: list[dict[str, Any]]) -> None:
    seen, unseen, _ = results[0]["watched"]
    assert seen == unseen
    for number in ("0", "2"):
        ranks = [rank["watched"][2][number] for rank in results]
        assert [rows for _, rows in ranks] == [32, 32]
        assert sum(loss for loss, _ in ranks) / 2 == pytest.approx(seen[int(number)][0], abs=2e-6)

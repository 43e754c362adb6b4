"""Distillation on two processes (gloo)."""

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
    folder = tmp_path_factory.mktemp("two_ranks_distill")
    root = Path(__file__).parents[2]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone"]
    command = [sys.executable, *launch, "-m", "tests.trainers.two_ranks_distill", str(folder / "out"), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    run = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return [json.loads((folder / f"out.{rank}").read_text(encoding="utf-8")) for rank in (0, 1)]


def near(found: Any, expected: Any, tolerance: float = 1e-5) -> Any:
    return [pytest.approx(line, rel=tolerance, abs=1e-7) for line in expected] == found


def test_weight_one_is_stock(results: Any) -> None:
    stock, *ours = results[0]["identity"]
    assert max(norm for _, norm, *_ in stock) > 0.01
    for run in ours:
        assert near(run, stock)


def test_a_pooled_choice_is_over_both_ranks(results: Any) -> None:
    (whole, parts), seen = results[0]["pooled"]
    assert near(parts, whole)
    assert results[1]["pooled"][1] == seen and [rows for rows, *_ in seen] == [16] * 6
    for *_, share, generated, trained in whole:
        assert share == pytest.approx(0.5, abs=0.02) and 0.4 * generated < trained < 0.6 * generated

"""`rlkit train` under `torch.distributed.run`: one set of files, and the metrics of one process.

The student draws greedily, so that both see the same completions. Tolerance: float32 sums in another order, which
Adam's division by the gradient's size blows up in entries that are nearly 0; metrics agree to 1e-3, counts exactly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlkit.launch.plan import Plan
from rlkit.launch.run import train

pytestmark = pytest.mark.slow

VALUES: dict[str, Any] = {"max_steps": 4, "save_steps": 2, "eval_every": 2, "eval_size": 8, "train_size": 64}
GREEDY = '{"do_sample": false}'


def test_two_processes_write_once_and_have_the_metrics_of_one(tmp_path: Path) -> None:
    root, two, one = Path(__file__).parents[2], tmp_path / "two", tmp_path / "one"
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone"]
    settings = [part for name, value in VALUES.items() for part in ("-p", f"{name}={value}")]
    call = ["train", "tip", "--preset", "smoke", "--task", "planted", *settings, "-p", f"generation_kwargs={GREEDY}"]
    run = subprocess.run(
        [sys.executable, *launch, "-m", "rlkit", *call, "--out", str(two)],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout.count("done, 4 steps") == 1 and run.stdout.count("step 2/4") == 1
    values = {**VALUES, "generation_kwargs": {"do_sample": False}}
    assert train(Plan("tip", "smoke", task="planted", values=values), one, lambda text: None).finished
    rng = {"rng_state.pth", "rng_state_0.pth", "rng_state_1.pth"}
    files = [{str(f.relative_to(at)) for f in at.rglob("*") if f.is_file() and f.name not in rng} for at in (one, two)]
    assert files[0] == files[1]
    tables = [pd.read_csv(at / "metrics.csv") for at in (one, two)]
    assert tables[0][["step", "metric"]].equals(tables[1][["step", "metric"]])
    for metric, expected in tables[0].groupby("metric"):
        found = tables[1].loc[expected.index, "value"]
        exact = metric in {"generated_tokens", "trained_tokens", "num_tokens", "accuracy"}
        assert found.tolist() == pytest.approx(expected["value"].tolist(), rel=0 if exact else 1e-3, abs=1e-6), metric

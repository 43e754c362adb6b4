"""A clock that is set back in mid-run, and an output that nobody reads: no run stops, nothing stored is spoilt."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rlkit
from rlkit.runs.store import Store
from tests.faults.injected import start

SHAPE: dict[str, Any] = {"preset": "smoke", "prompts_per_step": 1, "num_generations": 4, "max_steps": 3}
SHAPE |= {"train_size": 8, "eval_size": 2, "eval_every": 1, "seeds": 1, "progress": False}
ONCE_READ = time.time
PRINTER = f"""
import rlkit

def loud(completions, **columns):
    print("x" * 100_000, flush=True)
    return [float(len(text)) for text in completions]

runs = rlkit.run(["grpo"], workers=1, reward=loud, **{SHAPE!r})
assert runs.totals["optimizer_steps"].tolist() == [3]
"""


def test_a_clock_that_is_set_back_gives_no_negative_times_and_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path))
    asked = []

    def an_hour_back(completions: Sequence[Any], **columns: Any) -> list[float]:
        asked.append(len(completions))
        if len(asked) == 2:
            monkeypatch.setattr(time, "time", lambda: ONCE_READ() - 3600)
        return [float(len(text)) for text in completions]

    runs = rlkit.run(["grpo"], workers=0, reward=an_hour_back, **SHAPE)
    assert len(asked) == 3 and time.time() < ONCE_READ() - 3000
    assert (runs.timing["value"] >= 0).all() and {"step_time", "eval_seconds"} <= set(runs.timing["metric"])
    store = Store(tmp_path)
    with store.lock("any", timeout=0):
        store.write("any", {}, {"metrics.csv": b"1"})
    store.tidy()
    assert store.read("any") is not None


@pytest.mark.slow
def test_what_workers_print_fills_no_pipe_that_nobody_reads(tmp_path: Path) -> None:
    process = start("-c", PRINTER, home=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.wait(200) == 0
    assert len(Store(tmp_path).keys()) == 1
    process.communicate()

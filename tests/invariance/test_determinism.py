"""The same seed on the same machine gives the same files, and the same data the same figures.

Elsewhere: the same bytes in a quick version (`tests/test_runs.py`, `tests/test_plots.py`); two seeds differ, for every
method (`tests/methods/test_contract.py`) and in the bytes that the store writes (`tests/test_runs.py`); a vLLM engine
draws from the run's seed (`tests/trainers/test_services.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RUN = """
import sys, warnings
warnings.filterwarnings("ignore")
import rlkit
small = {"max_steps": 3, "train_size": 32, "eval_every": 2, "eval_size": 8}
groups = {"prompts_per_step": 2, "num_generations": 4, "reward": "graded"}
for name in sys.argv[1:]:
    given = {"prompts_per_step": 8, "task": "planted"} if name == "tip" else groups
    runs = rlkit.run([name], preset="smoke", seeds=1, workers=0, progress=False, record_steps=[1], **{**small, **given})
"""

DRAW = """
import sys, numpy as np, pandas as pd
from rlkit import plots

def curves(rng):
    rows = [(arm, seed, step, "accuracy", step / 100 + rng.normal(0, 0.02))
            for arm in ("grpo", "mc_grpo", "mean_plus_one") for seed in range(3) for step in range(0, 101, 10)]
    frame = pd.DataFrame(rows, columns=["arm", "seed", "step", "metric", "value"])
    roles = {"grpo": "baseline", "mc_grpo": "method", "mean_plus_one": "control"}
    return plots.curves(frame, "accuracy", roles=roles, title="Is the median better?")

def points(rng):
    return plots.points({"a": rng.normal(size=5), "b": rng.normal(size=5)}, xlabel="gain (share)")

def heat(rng):
    return plots.heat(pd.DataFrame(rng.normal(size=(2, 3))), centre=0, value="gain")

def histogram(rng):
    return plots.histogram({"a": rng.normal(size=99), "b": rng.normal(size=99)})

out, *names = sys.argv[1:]
for name in names:
    plots.save(globals()[name](np.random.default_rng(0)), out + "/" + name)
"""
FIGURES = ["curves", "points", "heat", "histogram"]
OF_TIME = {"timing.csv", "log.txt", "run.json"}
"""What the store writes about a run that is no result of it: seconds, what was printed, and where and when."""


def _python(code: str, *arguments: str, folder: Path, hash_seed: int, **variables: str) -> None:
    """Run code in a process of its own, in an empty folder."""
    folder.mkdir()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, env={**environment, **variables}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


@pytest.mark.slow
def test_two_processes_in_two_folders_write_the_same_metrics_tables_and_steps(tmp_path: Path) -> None:
    """Arms in another order, another hash seed, another store."""
    arms, written = ["grpo", "mc_grpo", "replay_uniform", "tip"], []
    for number, names in enumerate((arms, arms[::-1])):
        folder = tmp_path / f"process {number}"
        _python(RUN, *names, folder=folder, hash_seed=number + 1, RLKIT_HOME=str(folder / "home"))
        files = [path for path in (folder / "home").glob("*/*") if path.is_file() and path.name not in OF_TIME]
        written.append({f"{path.parent.name}/{path.name}": path.read_bytes() for path in files})
    assert written[0] == written[1]
    names = [name.split("/")[1] for name in written[0]]
    assert names.count("metrics.csv") == 4 and names.count("step_1.json") == 4


@pytest.mark.slow
def test_figures_have_the_same_bytes_in_another_process_and_drawn_in_another_order(tmp_path: Path) -> None:
    drawn = []
    for number, names in enumerate((FIGURES, FIGURES[::-1])):
        folder = tmp_path / str(number)
        _python(DRAW, str(folder), *names, folder=folder, hash_seed=number + 1)
        drawn.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert sorted(drawn[0]) == sorted(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg"))
    assert [name for name in drawn[0] if drawn[0][name] != drawn[1][name]] == []

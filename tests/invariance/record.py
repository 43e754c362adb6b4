"""Record the reference trajectories: `python -m tests.invariance.record`, or with names of methods behind it.

Record again only when numbers are meant to move: a method, a loss or an optimiser was changed on purpose, or a new
release of torch or TRL computes otherwise and the reason is known. Then say in the commit what moved and by how much
(this command prints it). A refactoring, another machine or another number of threads is no reason: a test that fails
there has found something.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from tests.invariance.closeness import residual
from tests.invariance.scripted import RUNS, Trajectory, train

FOLDER = Path(__file__).with_name("reference")
STEPS = 50


def read(name: str) -> Trajectory:
    """The recorded trajectory of a method."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def write(name: str, trajectory: Trajectory) -> None:
    """Nine digits a value, more than float32 has; a line a metric."""
    lines = [f"{json.dumps(k)}: [{', '.join(f'{v:.9g}' for v in values)}]" for k, values in trajectory.items()]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")


def main(names: list[str]) -> None:
    for name in names:
        before = read(name) if (FOLDER / f"{name}.json").exists() else {}
        with tempfile.TemporaryDirectory() as folder:
            write(name, train(name, Path(folder), STEPS))
        now = read(name)
        for metric in sorted(before.keys() & now.keys()):
            got = residual(now[metric], before[metric])
            print(f"{name}: {metric} moved by {got.largest:.1e} at most, {got.mean:+.1e} in the mean")


if __name__ == "__main__":
    main(sys.argv[1:] or list(RUNS))

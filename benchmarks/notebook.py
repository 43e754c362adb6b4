"""Where the time of a whole notebook goes, what imports cost, and the start of a worker.

The cells of notebook 02 run in IPython in a process of their own, runs included (no workers), with timers put around
public calls from outside. A timer stands still while one inside it runs, so that the parts add up. CPU seconds.
"""

from __future__ import annotations

import builtins
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing import get_context
from typing import Any

from benchmarks.readme import Report, about
from benchmarks.step import markdown

SLUG = "median_baseline"
PARTS = ("import", "load", "generate", "score", "train", "evaluate", "measure", "slow motion", "draw", "the rest")
CALLS = {
    "load": ["rlkit.models.loading:load_model", "rlkit.trainers.factory:trainer"],
    "generate": ["rlkit.trainers.rlvr:RLVRTrainer._generate"],
    "score": ["rlkit.trainers.rlvr:RLVRTrainer._calculate_rewards"],
    "train": ["rlkit.trainers.rlvr:RLVRTrainer.train"],
    "evaluate": ["rlkit.runs.training:Evaluation.evaluate"],
    "measure": ["rlkit.study:Study.measure"],
    "slow motion": ["rlkit.study:Study.preview", "rlkit.study:Study.compare"],
    "draw": ["rlkit.study:Study.figure", "rlkit.plots:lines", "rlkit.plots:points", "rlkit.plots:heat"],
}
"""What is timed as which part."""
IMPORTED = ("torch", "transformers", "trl", "trl.trainer.grpo_trainer", "rlkit", "rlkit.trainers.rlvr")
WORKER = "from rlkit.runs.jobs import start_worker; start_worker()"


class Timers:
    """CPU seconds of each part; the innermost one that runs is charged."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.running, self.since = ["the rest"], time.process_time()

    def switch(self) -> None:
        """Charge what has passed to the part that ran."""
        now = time.process_time()
        self.spent[self.running[-1]] += now - self.since
        self.since = now

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def call(*args: Any, **named: Any) -> Any:
            self.switch()
            self.running.append(part)
            try:
                return function(*args, **named)
            finally:
                self.switch()
                self.running.pop()

        return call

    def put_in(self, part: str, place: str) -> None:
        """Time what `module:name` or `module:Class.name` calls, wherever rlkit has imported it by name."""
        module, _, path = place.partition(":")
        owner: Any = importlib.import_module(module)
        *outer, last = path.split(".")
        for name in outer:
            owner = getattr(owner, name)
        old = getattr(owner, last)
        new = self.around(part, old)
        setattr(owner, last, new)
        for other in [m for name, m in sys.modules.items() if name.startswith("rlkit")] if not outer else []:
            if vars(other).get(last) is old:
                setattr(other, last, new)


def run_cells(preset: str, seeds: int, home: str) -> dict[str, float]:
    """Run the notebook's cells with a store of runs at `home`; CPU seconds of each part."""
    os.environ |= {"RLKIT_HOME": f"{home}/runs", "RLKIT_OUTPUT": f"{home}/figures", "RLKIT_WORKERS": "0"}
    os.environ |= {"RLKIT_PROGRESS": "lines", "MPLBACKEND": "agg"}
    timers = Timers()
    builtins.__import__ = timers.around("import", builtins.__import__)
    importing = timers.around("import", importlib.import_module)
    for part, places in CALLS.items():
        for place in places:
            importing(place.partition(":")[0])
            timers.put_in(part, place)
    from IPython.core.interactiveshell import InteractiveShell

    from rlkit.notebooks import read

    shell = InteractiveShell.instance()
    for cell in read(SLUG).cells:
        if cell.cell_type != "code":
            continue
        code = cell.source
        if "parameters" in cell.metadata.get("tags", []):
            code += f"\npreset, seeds = {preset!r}, {seeds}"
        with redirect_stdout(StringIO()):
            shell.run_cell(code).raise_error()
    timers.switch()
    return timers.spent


def in_process(function: Callable[..., Any], *given: Any) -> Any:
    """A call in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        return alone.submit(function, *given).result()


def seconds(code: str, rounds: int) -> float:
    """CPU seconds of a statement in a fresh Python: median."""
    timed = f"import time; t = time.process_time(); {code}; print(time.process_time() - t, file=sys.__stdout__)"
    found = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; {timed}"], capture_output=True, check=True, text=True
        )
        found.append(float(done.stdout.split()[-1]))
    return statistics.median(found)


def starts(rounds: int) -> tuple[str, float]:
    """What imports and a worker's start take, as a table; and what rlkit adds to TRL's import, as a ratio."""
    found = {f"`import {name}`": seconds(f"import {name}", rounds) for name in IMPORTED}
    found["start of a worker (TRL and all methods)"] = seconds(WORKER, rounds)
    trainer = found["`import trl.trainer.grpo_trainer`"]
    lines = [[what, f"{taken:.2f}", f"{taken / trainer:.2f}"] for what, taken in found.items()]
    return markdown(["in a fresh Python", "CPU s", "to TRL's GRPO trainer"], lines), (
        found["`import rlkit.trainers.rlvr`"] / trainer
    )


def report(quick: bool) -> Report:
    """Preset smoke, and unless it has to be quick preset tiny with one seed, from nothing and from stored runs."""
    columns: dict[str, dict[str, float]] = {}
    for preset, seeds in [("smoke", 0)] if quick else [("smoke", 0), ("tiny", 1)]:
        with tempfile.TemporaryDirectory() as home:
            for how in ("from nothing", "from stored runs"):
                columns[f"{preset}, {how}"] = in_process(run_cells, preset, seeds, home)
    total = {name: sum(spent.values()) for name, spent in columns.items()}
    lines = [
        [part, *(f"{spent[part]:.1f} s, {spent[part] / total[name]:.0%}" for name, spent in columns.items())]
        for part in PARTS
    ]
    lines.append(["**all**", *(f"**{taken:.1f} s**" for taken in total.values())])
    imports, ratio = starts(1 if quick else 5)
    how = f"Notebook `{SLUG}`, one seed; {about()}."
    text = f"{markdown(['part', *columns], lines)}\n\n{imports}\n\n{how}"
    summary = [("importing rlkit's trainer, to importing TRL's", f"{ratio:.2f}")]
    last = list(total)[-2:]
    summary.append(
        (f"notebook 02 from stored runs, to from nothing ({last[0]})", f"{total[last[1]] / total[last[0]]:.2f}")
    )
    return Report(text, summary)

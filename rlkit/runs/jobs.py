"""What a worker does with one job: take it from the store, or do it under the key's lock and store it.

Training and measuring differ only in what is computed; both give an `Entry` of files. A failure comes back as a value.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlkit.method import get_method
from rlkit.runs import results
from rlkit.runs.digest import Unhashable
from rlkit.runs.keys import Run, key_of, measure_parts, run_parts, run_sources, this_machine
from rlkit.runs.sources import changed_since_start
from rlkit.runs.store import Entry, Store, StoreError

METRICS, TIMING, LOG = "metrics.csv", "timing.csv", "log.txt"
HEADER = "arm,seed,step,metric,value\n"


@dataclass(frozen=True)
class Job:
    """One run or measurement to do."""

    name: str
    """The arm, or the measured function: for messages."""
    home: Path
    """Folder of the store."""
    parts: Mapping[str, str] | None
    """What determines it; None for what cannot be hashed, which is done but not stored."""
    run: Run | None = None
    function: Callable[..., Any] | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    fresh: bool = False
    """Do it again even where the store has it."""
    stop_after: int = 0
    """End training after this many steps; such a run is not stored."""
    progress: Path | None = None
    """A file that grows by one byte a step."""

    @property
    def key(self) -> str | None:
        """Name in the store."""
        return key_of(self.parts) if self.parts is not None and not self.stop_after else None

    @property
    def title(self) -> str:
        """For messages: arm and seed."""
        return f"{self.name!r}" + ("" if self.seed is None else f", seed {self.seed}")


@dataclass(frozen=True)
class Failure:
    """Why a job gave nothing."""

    cause: str
    """The error in one line."""
    details: str = ""
    """Traceback, and the last of what was printed."""


@dataclass(frozen=True)
class Reply:
    """What came of a job."""

    entry: Entry | None = None
    failure: Failure | None = None
    notes: Sequence[str] = ()
    """What the caller should hear: why it was not stored."""


def new_job(name: str, home: Path, *, stop_after: int = 0, **what: Any) -> tuple[Job, list[str]]:
    """A job with its key, and a note where it cannot have one.

    Raises:
        ValueError: unknown method, preset or task.
    """
    run, function = what.get("run"), what.get("function")
    parts, notes = None, []
    try:
        if run is not None:
            parts = run_parts(run)
        elif function is not None:
            parts = measure_parts(function, what.get("inputs", {}), what.get("seed"))
    except Unhashable as error:
        notes = [f"{name!r} is run but not cached: {error}."]
    return Job(name, home, parts, stop_after=stop_after, **what), notes


def work(job: Job, printed: Callable[[], str] = lambda: "") -> Reply:
    """Do a job. Errors of the job come back in the reply.

    Args:
        job: what to do.
        printed: gives what was printed meanwhile, for the log and for errors.
    """
    store = Store(job.home)
    try:
        if job.key is None:
            return Reply(_entry(job, store, printed))
        with store.lock(job.key):
            entry = None if job.fresh else store.read(job.key)  # another process may have finished it meanwhile
            return Reply(entry) if entry else _stored(job, store, printed)
    except Exception as error:
        where = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        cause = f"{type(error).__name__}: {error}{where}"
        tail = printed()[-2000:].strip()
        details = traceback.format_exc() + (f"\nLast output:\n{tail}\n" if tail else "")
        return Reply(failure=Failure(cause, details))


def _stored(job: Job, store: Store, printed: Callable[[], str]) -> Reply:
    assert job.key is not None
    changed = _changed_parts(job)
    entry = _entry(job, store, printed)
    if changed:
        return Reply(entry, notes=[
            f"{job.title} was run but not cached: {', '.join(changed)} changed after Python had started. Restart it."
        ])  # fmt: skip
    try:
        store.write(job.key, entry.meta, entry.files)
    except StoreError as error:
        return Reply(entry, notes=[f"{job.title}: {error}. Its result is kept in memory only."])
    return Reply(entry)


def _changed_parts(job: Job) -> list[str]:
    """What this process may run otherwise than the key says: files that changed after they were imported."""
    assert job.parts is not None
    files = run_sources(get_method(job.run.method)) if job.run is not None else None
    if changed := changed_since_start(files):
        return changed
    if job.run is not None:
        here = run_parts(job.run)
    else:
        assert job.function is not None
        here = measure_parts(job.function, job.inputs, job.seed)
    return [name for name, value in here.items() if job.parts.get(name) != value]


def _entry(job: Job, store: Store, printed: Callable[[], str]) -> Entry:
    meta: dict[str, Any] = {"name": job.name, "seed": job.seed, "parts": dict(job.parts or {})}
    if job.run is None:
        assert job.function is not None
        value = measured(job.function, job.inputs, job.seed)
        kind, files = results.encode(value)
        return Entry({**meta, "kind": kind}, files)
    from rlkit.runs.training import train

    with store.workspace(job.key or "unkeyed") as folder:
        done = train(job.run, folder, stop_after=job.stop_after, callbacks=_callbacks(job))
    arm = job.run.method if isinstance(job.run.method, str) else job.run.method.name
    files = {METRICS: _csv(arm, job.run.seed, done.metrics), TIMING: _csv(arm, job.run.seed, done.timing)}
    tables = {name: results.frame_files(table) for name, table in done.tables.items()}
    files |= {f"{name}.csv": content for name, (content, _) in tables.items()}
    files |= {f"step_{number}.json": json.dumps(step.to_dict()).encode("ascii") for number, step in done.steps.items()}
    if text := printed():
        files[LOG] = text.encode("utf-8", "replace")
    meta |= {
        "kind": "run",
        "machine": this_machine(),
        "settings": done.settings,
        "totals": done.totals,
        "notes": done.notes,
        "tables": {name: types for name, (_, types) in tables.items()},
        "steps": sorted(done.steps),
    }
    return Entry(meta, files)


def _csv(arm: str, seed: int, rows: Sequence[tuple[int, str, float]]) -> bytes:
    """Values with all their digits, so that equal runs have equal bytes."""
    lines = (f"{arm},{seed},{step},{metric},{value!r}\n" for step, metric, value in rows)
    return (HEADER + "".join(lines)).encode("utf-8")


def measured(function: Callable[..., Any], inputs: Mapping[str, Any], seed: int | None) -> Any:
    """Call a measure function with torch, numpy and random seeded, on one thread; their states are put back."""
    import random

    import numpy as np
    import torch

    states, threads = (random.getstate(), np.random.get_state()), torch.get_num_threads()
    arguments = dict(inputs) if seed is None else {**inputs, "seed": seed}
    try:
        with torch.random.fork_rng():
            torch.set_num_threads(1)
            random.seed(seed or 0)
            np.random.seed(seed or 0)
            torch.manual_seed(seed or 0)
            return function(**arguments)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_num_threads(threads)


def _callbacks(job: Job) -> list[Any]:
    from transformers import TrainerCallback

    progress = job.progress

    class EachStep(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if progress is not None:
                with contextlib.suppress(OSError), progress.open("ab") as file:
                    file.write(b".")

    return [EachStep()]


class Tail:
    """A file that keeps only the end of what is written to it; what workers print goes here."""

    encoding, errors = "utf-8", "replace"
    LIMIT = 20_000

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Keep the end."""
        self.text = (self.text + text)[-self.LIMIT :]
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        """Of the real stderr: what writes there directly, such as a crash report, is not kept."""
        return sys.__stderr__.fileno() if sys.__stderr__ else 2

    def isatty(self) -> bool:
        """No terminal: no bars, no colours."""
        return False

    def take(self) -> str:
        """What was written since the last call."""
        text, self.text = self.text, ""
        return text


_output = Tail()
_start_failed: Exception | None = None


def start_worker() -> None:
    """At the start of a worker process: quiet, one thread, deaf to Ctrl-C, and with TRL imported."""
    import signal

    global _start_failed
    from rlkit.runs.sources import freeze

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers itself
    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.stdout = sys.stderr = _output  # type: ignore[assignment]
    try:
        freeze()
        import torch

        torch.set_num_threads(1)
        from rlkit.method import catalog

        importlib.import_module("rlkit.runs.training")
        catalog()
    except Exception as error:  # a broken method file: each job reports it
        _start_failed = error


def end_with_parent(pause: float = 1.0) -> None:
    """End this process soon after its parent is gone: else workers would keep memory and cores for nobody."""
    import psutil  # type: ignore[import-untyped]  # accelerate brings it

    number = os.getppid()
    parent = psutil.Process(number)
    while os.getppid() == number and parent.is_running():  # Windows keeps the number of a dead parent
        time.sleep(pause)
    os._exit(1)


def work_in_worker(payload: bytes) -> Reply:
    """A job as a worker process receives it."""
    import cloudpickle

    _output.take()
    try:
        if _start_failed is not None:
            raise _start_failed
        job = cloudpickle.loads(payload)
        if job.progress is not None:
            job.progress.touch()  # it has begun: if this worker dies now, it may be the reason
    except Exception as error:
        return Reply(failure=Failure(f"{type(error).__name__}: {error}", traceback.format_exc()))
    return work(job, _output.take)

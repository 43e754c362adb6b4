"""Worker processes for a grid: kept warm between grids, replaced when source files change or one of them dies."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from rlkit.runs.jobs import Failure, Job, Reply, start_worker, work, work_in_worker
from rlkit.runs.sources import text_of

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
MEMORY = 2**30
"""Bytes that a worker may need."""
IDLE = 600.0
"""Seconds after which an idle worker ends."""
POLL = 0.3
"""Seconds between two looks at the progress."""
TRIES = 2
"""So often a pool is started whose workers die while they are idle."""

_pool: Any = None
_pool_kind: tuple[int, str] | None = None


def worker_count(asked: int | None, jobs: int) -> int:
    """How many workers: as asked, else `RLKIT_WORKERS`, else one per core and per free GB; never more than jobs.

    0 means: in this process, for debugging.

    Raises:
        ValueError: `RLKIT_WORKERS` is no whole number, or the number is negative.
    """
    named = os.environ.get("RLKIT_WORKERS")
    if asked is None and named:
        if not named.isdigit():
            raise ValueError(f"RLKIT_WORKERS is a whole number, not {named!r}.")
        asked = int(named)
    if asked is None:
        import joblib
        import psutil  # type: ignore[import-untyped]  # accelerate brings it

        asked = max(1, min(joblib.cpu_count(), psutil.virtual_memory().available // MEMORY))
    if asked < 0:
        raise ValueError(f"workers is {asked}: give 1 or more, or 0 to run in this process.")
    return min(asked, jobs)


def do_all(
    jobs: Sequence[Job], workers: int, watch: Callable[[int, int], None], heard: Callable[[int, Reply], None]
) -> None:
    """Do jobs, in worker processes or, with 0 workers, here.

    Args:
        jobs: what to do; their `progress` is set here.
        workers: how many processes.
        watch: called now and then with (optimiser steps, jobs) done so far.
        heard: called in this process with the number of a job and its reply, as it comes.

    Raises:
        KeyboardInterrupt: after the workers were ended; what was finished before is in the store.
    """
    with tempfile.TemporaryDirectory(prefix="rlkit-") as folder:
        tracked = [dataclasses.replace(job, progress=Path(folder) / str(i)) for i, job in enumerate(jobs)]
        if workers == 0:
            for number, job in enumerate(tracked):
                heard(number, work(job))
                watch(_steps(Path(folder)), number + 1)
            return
        try:
            _run(tracked, workers, lambda done: watch(_steps(Path(folder)), done), heard)
        except BaseException:
            stop()
            raise


def _steps(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _run(jobs: Sequence[Job], workers: int, watch: Callable[[int], None], heard: Callable[[int, Reply], None]) -> None:
    """Do the jobs. One whose worker dies takes the whole pool along: those that had begun are tried again, alone."""
    waiting, suspects, done = list(range(len(jobs))), list[int](), 0
    while waiting or suspects:
        alone = not waiting
        futures = _submit({number: jobs[number] for number in (suspects[:1] if alone else waiting)}, workers)
        suspects, waiting = suspects[1:] if alone else suspects, []
        pending: set[Future[Reply]] = set(futures)
        while pending:
            finished, pending = wait(pending, timeout=POLL, return_when=FIRST_COMPLETED)
            for future in finished:
                number, reply = futures[future], _reply(future)
                if reply is None and not alone:
                    (suspects if _has_begun(jobs[number]) else waiting).append(number)
                    continue
                done += 1
                heard(number, reply or _DIED)
            watch(done)
        if any(_reply(future) is None for future in futures):
            stop()


def _has_begun(job: Job) -> bool:
    return job.progress is not None and job.progress.exists()


def _submit(jobs: Mapping[int, Job], workers: int) -> dict[Future[Reply], int]:
    payloads = {number: _packed(job) for number, job in jobs.items()}
    for _ in range(TRIES):
        pool = _warm(workers, len(jobs))
        try:
            return {pool.submit(work_in_worker, payload): number for number, payload in payloads.items()}
        except BrokenProcessPool:  # a worker died while it was idle
            stop()
    raise RuntimeError("Worker processes die at their start; try workers=0 to see why.")


_DIED = Reply(failure=Failure("its worker process was killed twice, most likely for want of memory; try workers=1"))


def _reply(future: Future[Reply]) -> Reply | None:
    """A job's reply; None where its worker, or another one of the pool, died."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
    except Exception as error:  # the job could not be sent, or the reply could not be
        return Reply(failure=Failure(f"{type(error).__name__}: {error}"))


def _packed(job: Job) -> bytes:
    """A job as bytes: functions of a notebook go by value, those of files by name."""
    import cloudpickle

    return bytes(cloudpickle.dumps(job))


def _warm(workers: int, jobs: int) -> Any:
    """The pool; a new one where there is none, or one of another size, or one that started with other source files."""
    global _pool, _pool_kind
    state = _state()
    if _pool is not None and _pool_kind is not None:
        size, started_with = _pool_kind
        if started_with == state and (size == workers or size > workers >= jobs):
            return _pool
    from joblib.externals.loky import ProcessPoolExecutor

    stop()
    env = dict.fromkeys(THREADS, "1") | {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
    _pool = ProcessPoolExecutor(workers, timeout=IDLE, initializer=start_worker, env=env)
    _pool_kind = (workers, state)
    return _pool


def _state() -> str:
    """A hash of rlkit's files: workers run what they imported at their start."""
    texts = [text_of(path) for path in sorted(Path(__file__).resolve().parents[1].rglob("*.py"))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def stop() -> None:
    """End the workers at once, whatever they do."""
    global _pool, _pool_kind
    pool, _pool, _pool_kind = _pool, None, None
    if pool is not None:
        with contextlib.suppress(Exception):
            pool.shutdown(wait=True, kill_workers=True)

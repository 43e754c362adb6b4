"""Many jobs at once: those that the store has are read, equal ones are done once, failures name their arm and seed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from rlkit import paths
from rlkit.runs import pool
from rlkit.runs.jobs import Failure, Job, Reply
from rlkit.runs.progress import Progress
from rlkit.runs.store import Entry, Store


class RunError(RuntimeError):
    """One or more jobs of a grid failed; the results of the others are in the store."""


def do(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    progress: bool | str = True,
    name: str = "runs",
    steps: Sequence[int] = (),
) -> list[Entry]:
    """Do jobs, or take them from the store.

    Args:
        jobs: what is wanted.
        workers: processes (`rlkit.runs.pool.worker_count`).
        progress: a bar, "lines", or False.
        name: what the bar is called.
        steps: optimiser steps of each job, for the time left.

    Returns:
        An entry per job, in their order.

    Raises:
        RunError: jobs failed; the message names them and their causes.
        StoreError: there is something to do, and the store cannot be written to.
    """
    store = Store(paths.home())
    store.tidy()
    first: dict[str, int] = {}
    names = [job.key or f"unkeyed {number}" for number, job in enumerate(jobs)]
    for number, key in enumerate(names):
        first.setdefault(key, number)
    found = {number: _cached(store, jobs[number]) for number in first.values()}
    todo = [number for number, entry in found.items() if entry is None]
    if todo:
        store.check_writable()
    failures: dict[int, Failure] = {}
    with Progress(sum(steps[number] if steps else 1 for number in todo), len(todo), name, progress) as bar:

        def heard(position: int, reply: Reply) -> None:
            number = todo[position]
            for note in reply.notes:
                warnings.warn(note, stacklevel=2)
            found[number] = reply.entry
            if reply.failure is not None:
                failures[number] = reply.failure
                bar.tell(f"failed: {jobs[number].title}: {reply.failure.cause}")

        if todo:
            count = pool.worker_count(workers, len(todo))
            try:
                pool.do_all([jobs[number] for number in todo], count, bar.update, heard)
            except KeyboardInterrupt:
                kept = f"{bar.finished} of {len(todo)} runs were finished and are kept"
                raise KeyboardInterrupt(f"interrupted: {kept}; the same call does the rest") from None
    if failures:
        raise RunError(_message({jobs[number].title: failure for number, failure in failures.items()}, len(todo)))
    entries = [found[first[key]] for key in names]
    return [entry for entry in entries if entry is not None]


def _cached(store: Store, job: Job) -> Entry | None:
    return store.read(job.key) if job.key and not job.fresh else None


def _message(failures: Mapping[str, Failure], done: int) -> str:
    """All failures in a line each, and the details of the first."""
    lines = [f"{title}: {failure.cause}" for title, failure in failures.items()]
    kept = f" The other {done - len(lines)} are kept." if done > len(lines) else ""
    head = f"{len(lines)} of {done} runs failed.{kept}\n" if done > 1 else ""
    details = next(iter(failures.values())).details
    return head + "\n".join(lines[:20]) + (f"\n\nDetails of the first:\n{details}" if details else "")

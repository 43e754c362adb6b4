"""Check the exercises of one notebook in a process of its own, with limits; what hangs or breaks is a result.

Nothing that a notebook holds is executed in this process: notebooks are read as data.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlkit import paths
from rlkit.course.slices import Slice, slices
from rlkit.exercises import names
from rlkit.notebooks.kernel import OFFLINE, THREADS

START = 120.0
"""Seconds that a process may take to load torch, on a busy machine."""
POLL = 0.05
KEEP = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables of our environment that a student's code sees: secrets are not among them."""


@dataclass(frozen=True)
class Limits:
    """What one exercise may take."""

    seconds: float = 60.0
    megabytes: int = 2000
    """Beside what the libraries take."""


@dataclass(frozen=True)
class Result:
    """How one exercise of one notebook ended."""

    exercise: str
    """"" for a notebook that cannot be read."""
    result: str
    """passed, failed, missing, time limit, memory limit, died, or unreadable."""
    message: str = ""
    seconds: float = 0.0


def check_notebook(path: Path, limits: Limits | None = None) -> list[Result]:
    """Check a notebook: one result for each exercise that it has, or that a notebook of its name should have.

    Args:
        path: the notebook's file.
        limits: for each exercise.
    """
    import nbformat

    try:
        found = slices(nbformat.read(path, as_version=4))
    except Exception as error:  # nbformat raises many kinds: bad JSON, wrong version, broken schema
        return [Result("", "unreadable", f"{type(error).__name__}: {str(error)[:200]}")]
    wanted = [name for name in names() if name.partition(".")[0] in _slugs(path, found)]
    if not wanted:
        return [Result("", "unreadable", "no check of an exercise in it, and its name is not a notebook's")]
    mine = {name: found[name] for name in wanted if name in found}
    results = _checked(mine, limits or Limits()) if mine else {}
    missing = "the notebook does not check it: the cell is gone"
    return [results.get(name) or Result(name, "missing", missing) for name in wanted]


def _slugs(path: Path, found: Mapping[str, Slice]) -> set[str]:
    """The notebooks that a file may be, by the exercises that it checks and by its name."""
    known = {name.partition(".")[0] for name in names()}
    return known & ({name.partition(".")[0] for name in found} | {slug for slug in known if slug in path.stem})


def _checked(todo: Mapping[str, Slice], limits: Limits) -> dict[str, Result]:
    """Each exercise once: after one that ended its process, another process goes on with the rest."""
    left, results = dict(todo), dict[str, Result]()
    while left:
        done = _process(list(left.values()), limits)
        results |= done
        left = {name: part for name, part in left.items() if name not in done}
    return results


def _process(todo: Sequence[Slice], limits: Limits) -> dict[str, Result]:
    """Check exercises in one process, as far as it comes: at least the first has a result."""
    with tempfile.TemporaryDirectory(prefix="rlkit-course-", ignore_cleanup_errors=True) as folder:
        work = Path(folder) / "work"
        work.mkdir()
        job, said, errors = (Path(folder) / name for name in ("job.json", "results.jsonl", "errors.txt"))
        parts = {part.name: part.cells for part in todo}
        content = {"results": str(said), "megabytes": limits.megabytes, "slices": parts}
        job.write_text(json.dumps(content), encoding="utf-8")
        process = _start(job, work, errors)
        try:
            return _Watch(process, said, errors, todo[0].name, limits).results()
        finally:
            _end(process)


def _start(job: Path, work: Path, errors: Path) -> subprocess.Popen[bytes]:
    """A process that sees neither our environment nor a network's caches, and writes to a folder that is removed."""
    environment = {name: os.environ[name] for name in KEEP if name in os.environ}
    environment |= dict.fromkeys(THREADS, "1") | dict.fromkeys(OFFLINE, "1")
    environment |= {"MPLBACKEND": "agg", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    environment |= {"HOME": str(work), "USERPROFILE": str(work), "RLKIT_HOME": str(work), "RLKIT_OUTPUT": str(work)}
    environment |= {"RLKIT_ROOT": str(paths.root()), "RLKIT_RECORDED": "1", "RLKIT_WORKERS": "0"}
    environment |= {"PYTHONPATH": str(checkout)} if (checkout := paths.checkout()) else {}
    command = [sys.executable, "-m", "rlkit.course.child", str(job)]
    none, place = subprocess.DEVNULL, {"cwd": work, "env": environment, "start_new_session": True}
    with errors.open("wb") as file:
        return subprocess.Popen(command, stdin=none, stdout=none, stderr=file, **place)  # type: ignore[call-overload]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


class _Watch:
    """Follows what a process says, and stops waiting where it runs into a limit."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path, errors: Path, first: str, limits: Limits) -> None:
        self.process, self.said, self.errors, self.limits = process, said, errors, limits
        self.current, self.since = first, time.monotonic()
        self.started = False
        self.read, self.base = 0, 0
        self.found: dict[str, Result] = {}

    def results(self) -> dict[str, Result]:
        """What came of the exercises, up to the first that ended its process."""
        while True:
            over = self.process.poll() is not None
            self._listen()
            if over:
                break
            if (problem := self._limit()) is not None:
                self.found[self.current] = problem
                return self.found
            time.sleep(POLL)
        if self.current not in self.found:
            self.found[self.current] = self._died()
        return self.found

    def _listen(self) -> None:
        """Take in the lines that are new."""
        if not self.said.is_file():
            return
        lines = self.said.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        for line in lines[self.read :]:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # lines that the student's code wrote
                self._take(json.loads(line))
        self.read = len(lines)

    def _take(self, said: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if said["state"] == "started":
            self.started, self.current = True, said["name"]
            self.base = self.base or _memory(self.process.pid)
        else:
            self.found[said["name"]] = Result(said["name"], said["state"], said["text"], round(now - self.since, 1))
        self.since = now

    def _limit(self) -> Result | None:
        """The limit that the current exercise has met, if any."""
        took = time.monotonic() - self.since
        if took > (self.limits.seconds if self.started else START):
            text = f"no end after {took:.0f} s" if self.started else f"the process was not ready after {took:.0f} s"
            return Result(self.current, "time limit", text, round(took, 1))
        if self.started and _memory(self.process.pid) > self.base + self.limits.megabytes * 2**20:
            return Result(self.current, "memory limit", f"more than {self.limits.megabytes} MB", round(took, 1))
        return None

    def _died(self) -> Result:
        took = round(time.monotonic() - self.since, 1)
        said = self.errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = f": {said[-1][:200]}" if said and not self.started else ""
        return Result(self.current, "died", f"the process ended with code {self.process.returncode}{why}", took)


def _memory(pid: int) -> int:
    """Bytes that a process holds; 0 when it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0

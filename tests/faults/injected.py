"""Faults as they really come: a disk that takes no more, a user without rights, signals, processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rlkit

ROOT = Path(rlkit.__file__).parent.parent
NOBODY = 65534


@contextmanager
def full_disk(free: int = 0) -> Iterator[None]:
    """No file of this process can grow beyond `free` bytes: the system refuses writes in the middle of a file."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that this user may not write to; root, whom modes do not stop, becomes somebody else meanwhile."""
    root = os.geteuid() == 0
    own = [above for above in folder.parents if Path(tempfile.gettempdir()) in above.parents]
    for above in own if root else ():  # pytest's folders are its user's own
        above.chmod(0o755)
    folder.chmod(0o555)
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def hear() -> None:
    """In a child before it starts: jobs in the background of a shell inherit a Ctrl-C that is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*command: str, home: Path, **options: Any) -> subprocess.Popen[str]:
    """Python in a process group of its own, with a store of its own; it hears Ctrl-C."""
    env = {**os.environ, "RLKIT_HOME": str(home), "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    shape: dict[str, Any] = {"env": env, "text": True, "start_new_session": True, "preexec_fn": hear, **options}
    return subprocess.Popen([sys.executable, *command], **shape)


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def gone(process: int, seconds: float = 10) -> bool:
    """Whether a process ends within some seconds; one that only waits to be reaped has ended."""
    import psutil

    def ended() -> bool:
        return not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE

    wait_until(ended, seconds)
    return True

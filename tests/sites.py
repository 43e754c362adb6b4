"""One built site for all tests that look at it, whatever worker they run in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
RUN = "median_baseline"
"""The notebook that is executed first, so that a page has tables, token strips and prints."""


def workspace(factory: Any) -> Path:
    """A folder in which `rlkit figures` and `rlkit site` have run; made by the first worker that asks."""
    base = factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "rlkit-site"
    shared.mkdir(exist_ok=True)
    with FileLock(shared / "lock"):
        if not (shared / "done").exists():
            _run(shared, "figures", RUN, "--preset", "smoke")
            executed = shared / "build" / "executed"
            shutil.copytree(executed / "smoke", executed / "tiny", dirs_exist_ok=True)  # smoke is never shown
            _run(shared, "site")
            (shared / "done").touch()
    return shared


def site(factory: Any) -> Path:
    """The folder of the pages."""
    return workspace(factory) / "build" / "site"


def _run(root: Path, *arguments: str) -> None:
    own = {"RLKIT_ROOT": str(root), "RLKIT_HOME": str(root / "runs"), "PYTHONPATH": path_for_children()}
    command = [sys.executable, "-m", "rlkit", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **own}, cwd=root, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def path_for_children() -> str:
    """The import path of processes that tests start: this checkout first."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

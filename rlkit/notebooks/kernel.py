"""One notebook, executed by papermill on the current interpreter, with a time limit and a clear word when it fails."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit import paths
from rlkit.notebooks.parameters import tags

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from rlkit.notebooks.progress import Watch

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
HANDSHAKE = tuple(f"RLKIT_{word}" for word in ("RECORDED", "RECORD", "OUTPUT", "WRITE", "WORKERS", "FRESH", "PROGRESS"))

_running: set[int] = set()
"""Process ids of the kernels that are alive, so that Ctrl-C ends them too."""


class NotebookError(ValueError):
    """A notebook cannot be found, may not run like this, failed, or did not leave what it should have."""


@dataclass
class Job:
    """What is needed to execute one notebook."""

    slug: str
    path: Path
    """The notebook's file."""
    cells: int
    """How many cells it has."""
    copy: Path
    """Where the executed notebook is kept, also when it fails."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """`RLKIT_*` variables for the kernel; those not named are empty there."""
    timeout: float | None = None
    """Seconds for the whole notebook."""


def kernel_environment(job: Job, private: Path) -> dict[str, str]:
    """What the kernel's environment has beyond ours.

    One thread per process (the grid's workers use the cores), no network unless `HF_HUB_OFFLINE=0` or a preset whose
    model is on the hub asks for it, figures inline, no user's IPython start-up files, and the same rlkit as here. A
    wrong solution of an exercise is an error.
    """
    offline = "0" if os.environ.get("HF_HUB_OFFLINE") == "0" else "1"
    extra = {"RLKIT_ROOT": str(paths.root()), "IPYTHONDIR": str(private), "PYTHONHASHSEED": "0"}
    extra |= {"RLKIT_HOME": str(paths.home()), "RLKIT_STRICT_CHECKS": "1"}
    extra |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "TOKENIZERS_PARALLELISM": "false"}
    if checkout := paths.checkout():
        extra["PYTHONPATH"] = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")]))
    fixed = dict.fromkeys(THREADS, "1") | dict.fromkeys(OFFLINE, offline) | dict.fromkeys(HANDSHAKE, "")
    return {name: value.replace("$", "$$") for name, value in (fixed | extra | dict(job.environment)).items()}


class _Run:
    """One execution: where it is, how much time is left, which kernel it has."""

    def __init__(self, job: Job, watch: Watch) -> None:
        self.job, self.watch = job, watch
        self.deadline = time.monotonic() + job.timeout if job.timeout else None
        self.cell: NotebookNode | None = None
        self.number = 0
        self.kernels: list[int] = []

    def enter(self, cell: NotebookNode, cell_index: int) -> None:
        """A cell begins (hook of nbclient)."""
        self.cell, self.number = cell, cell_index + 1
        self.watch.cell(self.number)

    def time_left(self, cell: NotebookNode) -> int | None:
        """Seconds that a cell may take (hook of nbclient): what is left of the notebook's limit."""
        return None if self.deadline is None else max(1, round(self.deadline - time.monotonic()))

    def where(self) -> str:
        """The current cell, named by its number and first line."""
        return f"cell {self.number} ({first_line(self.cell)})" if self.cell else "the start"

    def explain(self, error: Exception) -> str | None:
        """The failure in words; None for what is no failure of the notebook."""
        from nbclient.exceptions import CellTimeoutError, DeadKernelError
        from papermill import PapermillExecutionError

        if isinstance(error, PapermillExecutionError):
            return f"{self.where()} raised {error.ename}: {_plain(error.evalue)}"
        if isinstance(error, CellTimeoutError):
            return f"time limit: the notebook ran past its {self.job.timeout:g} s, in {self.where()}"
        if isinstance(error, DeadKernelError):
            return (
                f"the kernel died in {self.where()}: killed, most likely for want of memory. Finished runs are kept: "
                "the same command does the rest. Close other programs, or set RLKIT_WORKERS=1"
            )
        if isinstance(error, RuntimeError) and "Kernel" in str(error):
            return f"the kernel of {sys.executable} did not start: {error}"
        return None

    def manager(self, private: Path) -> type:
        """A kernel manager whose only kernel is this interpreter, whatever kernelspecs are installed.

        Its files, its sockets and what the kernel process itself prints (threads, C code, its own warnings) go to the
        folder `private`.
        """
        from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
        from jupyter_client.manager import AsyncKernelManager
        from traitlets import default

        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        environment = kernel_environment(self.job, private)
        started, log = self.kernels, private / "log.txt"

        class Here(KernelSpecManager):
            def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
                return KernelSpec(argv=command, display_name="Python 3", language="python", env=environment)

        class Manager(AsyncKernelManager):
            @default("kernel_spec_manager")
            def _only_here(self) -> KernelSpecManager:
                return Here()

            @default("transport")
            def _private_sockets(self) -> str:
                return "tcp" if os.name == "nt" else "ipc"

            @default("connection_file")
            def _private_file(self) -> str:
                return str(private / "kernel.json")

            async def _async_start_kernel(self, **kwargs: Any) -> None:
                with log.open("ab") as file:
                    await super()._async_start_kernel(**kwargs, stdout=file, stderr=file)
                started.append(self.provisioner.pid)  # type: ignore[union-attr]
                _running.add(started[-1])

            start_kernel = _async_start_kernel

        return Manager


def execute(job: Job, watch: Watch) -> None:
    """Execute a notebook and keep the executed copy.

    Raises:
        NotebookError: a cell failed, the kernel did not start or died, or the time ran out.
    """
    if importlib.util.find_spec("ipykernel") is None:
        raise NotebookError(f"no kernel: {sys.executable} has no ipykernel: run python -m pip install ipykernel")
    run = _Run(job, watch)
    done = False
    try:
        _papermill(run)
        done = True
    except Exception as error:
        message = run.explain(error)
        if message is None:
            raise
        raise NotebookError(message) from None
    finally:
        for pid in run.kernels:
            _running.discard(pid) if done else _kill(pid)  # workers of a dead kernel would live on
    _ran_to_the_end(job)


def _papermill(run: _Run) -> None:
    from papermill import execute_notebook

    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what goes wrong is said once, by `explain`
    run.job.copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rlkit-", ignore_cleanup_errors=True) as private:
        execute_notebook(
            _literally(run.job.path),
            _literally(run.job.copy),
            parameters=dict(run.job.parameters),
            kernel_name="python3",
            language="python",
            progress_bar=False,
            stderr_file=run.watch,
            # the rest goes to nbclient
            kernel_manager_class=run.manager(Path(private)),
            resources={"metadata": {"path": str(paths.root())}},
            timeout_func=run.time_left,
            on_cell_start=run.enter,
            coalesce_streams=True,
            iopub_timeout=60,
        )


def _literally(path: Path) -> str:
    """Papermill formats paths with the parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _ran_to_the_end(job: Job) -> None:
    """A cell that calls `exit()` ends a notebook early, which papermill takes for success."""
    import nbformat

    executed = nbformat.read(job.copy, as_version=4)
    for number, cell in enumerate(executed.cells, 1):
        code = cell.cell_type == "code" and cell.source.strip() and "skip-execution" not in tags(cell)
        if code and cell.execution_count is None:
            raise NotebookError(f"stopped early: cell {number} ({first_line(cell)}) never ran")


def first_line(cell: NotebookNode) -> str:
    """The first line of a cell with code, shortened."""
    lines = [line.strip() for line in cell.source.splitlines()]
    text = next((line for line in lines if line and not line.startswith("#")), "empty")
    return text if len(text) <= 60 else text[:57] + "..."


def _plain(text: str) -> str:
    """Without terminal colours, and short: the executed notebook has the rest."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).strip()
    return text if len(text) <= 1500 else text[:1500] + " ..."


def kill_kernels() -> None:
    """End every running kernel with its workers: what Ctrl-C does when notebooks run in parallel."""
    for pid in tuple(_running):
        _kill(pid)


def _kill(pid: int) -> None:
    _running.discard(pid)
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)  # the kernel leads its own group: its workers go with it
        else:
            os.kill(pid, signal.SIGTERM)

"""The system kills a notebook's kernel (for want of memory) after a figure was drawn."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rlkit import notebooks
from rlkit.notebooks import Options
from tests.faults.injected import tree
from tests.notebooks.conftest import cells, make, workspace

__all__ = ["cells", "make", "workspace"]


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_kill_9_of_the_kernel_leaves_the_committed_figures_and_names_the_cell(
    make: Callable[..., Path], workspace: Path, cells: dict[str, str]
) -> None:
    make(cells["draw"], "figure('a')", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    committed = workspace / "figures" / "demo"
    committed.mkdir(parents=True)
    for kind in ("svg", "png"):
        (committed / f"a.{kind}").write_text("committed", encoding="utf-8")
    before = tree(committed)
    outcome = notebooks.run("demo", Options({"preset": "full"}))
    assert not outcome.ok and tree(committed) == before
    # of the executed copy, which has a cell more: the given parameters
    assert "the kernel died in cell 5 (import os, signal)" in outcome.message
    assert "the same command does the rest" in outcome.message and "RLKIT_WORKERS=1" in outcome.message
    assert (workspace / "build" / "staged" / "demo" / "a.svg").is_file()

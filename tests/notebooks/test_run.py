"""Notebooks executed: each way to fail is a clear message, a failure and a kept copy (E28 to E34)."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from rlkit import notebooks, paths
from rlkit.notebooks import NotebookError, Options

Maker = Callable[..., Path]


def _printed(executed: Path | None) -> str:
    assert executed is not None
    cells = nbformat.read(executed, as_version=4).cells
    return "".join(out.text for cell in cells for out in cell.get("outputs", []) if out.output_type == "stream")


@pytest.mark.parametrize(
    ("maker", "given", "message"),
    [
        ({}, {"nonsense": 1}, r"unknown parameter 'nonsense'.*preset='tiny', seeds=0, lr=1e-05"),
        ({}, {"lr": "fast"}, "parameter lr=1e-05 is of type float; 'fast' is not"),
        ({}, {"preset": "tinny"}, r"no preset 'tinny'.*'tiny'"),
        ({"parameters": None}, {"lr": 1}, "no cell is tagged 'parameters'"),
        ({"parameters": None}, {}, "no cell is tagged 'parameters'"),
    ],
)
def test_refused_before_a_kernel_starts(
    make: Maker, maker: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    make("1", **maker)
    outcome = notebooks.run("demo", Options(given))
    assert not outcome.ok
    assert re.search(message, outcome.message), outcome.message
    assert not paths.build().exists()


def test_recorded_without_recorded_data_says_what_to_do(make: Maker) -> None:
    make("1")
    assert "run the preset full once" in notebooks.run("demo", Options(recorded=True)).message


@pytest.mark.parametrize(
    ("cells", "timeout", "message"),
    [
        (["x = 1", "1 / 0"], None, r"cell 3 \(1 / 0\) raised ZeroDivisionError: division by zero"),
        (
            ["import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nos._exit(1)"],
            None,
            r"kernel died in cell 2 \(import os",
        ),
        (["import time\ntime.sleep(60)"], 1, r"time limit: the notebook ran past its 1 s, in cell 2 \(import time\)"),
        (["import sys\nsys.exit(0)", "x = 1"], None, r"stopped early: cell 3 \(x = 1\) never ran"),
        (["x = 1"], None, "without writing a figure"),
        (
            ["import rlkit\nrlkit.check('median_baseline.advantage', lambda r: (r - r.mean(), r > 0))"],
            None,
            r"cell 2 .* raised AssertionError: ✘ median_baseline.advantage: case 1 of",
        ),
    ],
)
def test_failures_of_the_kernel_are_named_and_the_copy_is_kept(
    make: Maker, cells: list[str], timeout: float | None, message: str
) -> None:
    source = make(*cells)
    before = source.read_bytes()
    started = time.monotonic()
    outcome = notebooks.run("demo", Options(timeout=timeout))
    assert time.monotonic() - started < 120, "it fails by itself, not at a limit"
    assert not outcome.ok
    assert re.search(message, outcome.message), outcome.message
    assert outcome.executed == paths.build() / "executed" / "tiny" / "demo.ipynb"
    assert len(nbformat.read(outcome.executed, as_version=4).cells) >= len(cells)
    assert source.read_bytes() == before, "sources are never written"


def test_runs_on_this_interpreter_from_any_folder_without_network_and_on_one_thread(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: dict[str, str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names = ["OMP_NUM_THREADS", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "RLKIT_PROGRESS", "RLKIT_WORKERS"]
    show = f"import sys, os\nprint(sys.executable, [os.environ[n] for n in {names}], os.getcwd(), lr, sizes)"
    make(show, cells["draw"], "figure('a')", kernel="a-kernel-that-nobody-has")
    outcome = notebooks.run("demo", Options({"lr": "3e-4", "sizes": "[8]"}))
    assert outcome.ok, outcome.message
    printed = _printed(outcome.executed)
    assert f"{sys.executable} ['1', '1', '1', 'lines', " in printed
    assert f"{tmp_path} 0.0003 [8]" in printed
    assert not list(elsewhere.iterdir())


def test_notebook_without_kernelspec_and_with_many_lines_of_output(
    make: Maker, cells: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    noisy = "import sys, time\nfrom tqdm import tqdm\nfor i in tqdm(range(2000)):\n    time.sleep(0.0005)"
    make(
        noisy,
        "for k in range(9): print('line', k, file=sys.stderr, flush=True)",
        cells["draw"],
        "figure('a')",
        kernel="",
    )
    outcome = notebooks.run("demo", Options())
    assert outcome.ok, outcome.message
    printed = _printed(outcome.executed)
    assert len(re.split(r"[\r\n]+", printed.strip())) < 40, "a bar is kept in its last states, not in all of them"
    said = capsys.readouterr().err.splitlines()
    assert 2 <= len(said) < 12
    assert all(line.startswith("demo [") for line in said)


def test_expected_figures_must_be_rewritten(make: Maker, cells: dict[str, str]) -> None:
    make(cells["draw"], "figure('a')\nfigure('b')")
    assert notebooks.run("demo", Options()).ok
    committed = paths.figures("demo")
    committed.mkdir(parents=True)
    (committed / "gone.svg").write_text("<svg/>", encoding="utf-8")
    study = "class Study:\n    def figure(self, name): pass\nstudy = Study()\nstudy.figure('b')"
    make(cells["draw"], "figure('a')", study)
    outcome = notebooks.run("demo", Options())
    assert not outcome.ok
    missing = "without writing b.png, b.svg, gone.png, gone.svg to"
    assert missing in outcome.message, "b: named by a cell, there from the last run; gone: committed"


def test_full_writes_figures_and_everything_else_goes_to_build(
    make: Maker, workspace: Path, cells: dict[str, str]
) -> None:
    make(cells["draw"], "figure('a')", f"shift = lr\n{cells['judge']}")
    full = notebooks.run("demo", Options({"preset": "full"}))
    assert full.output == workspace / "figures" / "demo"
    assert sorted(path.name for path in full.output.iterdir()) == ["a.png", "a.svg", "claims.json"]
    assert [(change.committed, change.new) for change in full.changes] == [("none", "supported")]
    changed = notebooks.run("demo", Options({"preset": "full", "lr": "-1"}))
    assert changed.output == workspace / "build" / "figures" / "full" / "demo"
    assert [(change.committed, change.new) for change in changed.changes] == [("supported", "refuted")]
    assert {path.name for path in workspace.iterdir()} == {"notebooks", "figures", "build"}


def test_several_notebooks_in_parallel_one_broken(
    make: Maker, cells: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(cells["draw"], "figure('a')", name="01_first")
    make("1 / 0", name="family/second")
    outcomes = {outcome.slug: outcome for outcome in notebooks.run_all([], Options(jobs=2))}
    assert {slug: outcome.ok for slug, outcome in outcomes.items()} == {"first": True, "second": False}


def test_slugs_numbers_and_near_names(make: Maker) -> None:
    make("1", name="02_median_baseline")
    make("1", name="replay/rlep")
    for name in ("median_baseline", "02", "2", "02_median_baseline", "notebooks/02_median_baseline.ipynb"):
        assert notebooks.resolve(name) == "median_baseline"
    assert notebooks.resolve("rlep") == "rlep"
    with pytest.raises(NotebookError, match=r"no notebook 'median_basline'.*'median_baseline'"):
        notebooks.resolve("median_basline")
    with pytest.raises(NotebookError, match="there is no notebook"):
        notebooks.run_all(["rlep", "nothing"], Options())
    make("1", name="other/rlep")
    with pytest.raises(NotebookError, match="two notebooks have the slug 'rlep'"):
        notebooks.available()


def test_file_that_is_no_notebook(workspace: Path) -> None:
    (workspace / "notebooks" / "bad.ipynb").write_text("{", encoding="utf-8")
    outcome = notebooks.run("bad", Options())
    assert not outcome.ok
    assert "is not a valid notebook" in outcome.message


def test_arms_are_read_without_running_the_notebook(make: Maker) -> None:
    path = make("1 / 0", "arms = [preset, *sizes, rlkit.__name__]", "print(1 / 0)")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[2].metadata["tags"] = ["arms"]
    nbformat.write(notebook, path)
    assert notebooks.arms_of("demo") == ["tiny", 2, 4, "rlkit"]
    notebook.cells[2].source = "arms = helper()"
    nbformat.write(notebook, path)
    with pytest.raises(NotebookError, match="must run on its own: NameError"):
        notebooks.arms_of("demo")
    make("1")
    with pytest.raises(NotebookError, match="no cell tagged 'arms'"):
        notebooks.arms_of("demo")


@pytest.mark.skipif(os.name == "nt", reason="process groups are a POSIX idea")
def test_a_killed_notebook_takes_its_workers_along(make: Maker, tmp_path: Path) -> None:
    spawn = "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    spawn += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\nchild.wait()"
    make(spawn)
    assert not notebooks.run("demo", Options(timeout=2)).ok
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    for _ in range(50):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    pytest.fail(f"worker {pid} is still alive")

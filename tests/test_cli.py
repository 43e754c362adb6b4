"""The command `rlkit`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner, Result

from rlkit.cli import BEGIN, END, app

DRAW = """import os
from pathlib import Path
from rlkit import claims, paths, plots
output = Path(os.environ["RLKIT_OUTPUT"] or paths.figures("demo"))
recorded = os.environ["RLKIT_RECORDED"] == "1"
height = float((paths.recorded("demo") / "height.txt").read_text()) if recorded else shift
plots.save(plots.points({"a": [0.1, height]}, title="t"), output / "a")
claim = claims.Claim("wins", "It wins.", "difference", ">", 0.0, "share", "supported")
values = [height + 0.01 * k for k in range(5)]
claims.write_claims(output / "claims.json", "demo", preset, "0", [claims.judge(claim, values)])"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with the notebook `demo`, whose claim is judged by the parameter `shift`."""
    monkeypatch.setenv("RLKIT_ROOT", str(tmp_path))
    monkeypatch.delenv("RLKIT_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    cells = [nbformat.v4.new_code_cell('preset = "tiny"\nseeds = 0\nshift = 0.5', metadata={"tags": ["parameters"]})]
    notebook = nbformat.v4.new_notebook(cells=[*cells, nbformat.v4.new_code_cell(DRAW)])
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook, tmp_path / "notebooks" / "07_demo.ipynb")
    return tmp_path


def _rlkit(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def _tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "build" not in path.relative_to(folder).parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    started = time.monotonic()
    heavy = {"torch", "trl", "numpy", "pandas", "papermill", "nbformat"}
    code = f"import sys, rlkit.__main__; print(sorted(set(sys.modules) & {heavy}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
    shown = subprocess.run([sys.executable, "-m", "rlkit", "--help"], capture_output=True, text=True, check=True)
    assert "figures" in shown.stdout
    assert time.monotonic() - started < 4, "two processes on a busy machine; each takes 0.2 s on an idle one"


def test_misspelt_parameter_fails_and_lists_the_known_ones(workspace: Path) -> None:
    result = _rlkit("figures", "demo", "--preset", "smoke", "-p", "nonsense=1")
    assert result.exit_code == 1
    assert "unknown parameter 'nonsense'" in result.stderr
    assert "preset='tiny', seeds=0, shift=0.5" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmeo"], "there is no notebook 'dmeo'. Did you mean 'demo'?"),
        (["demo", "-p", "shift"], "-p wants name=value"),
        (["demo", "-p", "shift=1", "-p", "shift=2"], "-p shift is given twice"),
        (["demo", "--preset", "tiny", "-p", "preset=smoke"], "contradict"),
        (["demo", "--seed", "3", "--seeds", "2"], "--seed names one seed and --seeds says how many"),
        (["demo", "--seed", "3", "-p", "seeds=[4]"], "contradict"),
        (["demo", "-p", "seeds=three"], "parameter seeds=0 is of type int | list[int]"),
        (["demo", "-p", "shift=high"], "parameter shift=0.5 is of type float"),
        (["demo", "--recorded"], "nothing is recorded"),
    ],
)
def test_bad_arguments_are_clear(workspace: Path, arguments: list[str], message: str) -> None:
    result = _rlkit("figures", *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert _tree(workspace).keys() == {"notebooks/07_demo.ipynb"}


def test_full_recorded_and_check_through_their_exit_codes(workspace: Path) -> None:
    full = _rlkit("figures", "--preset", "full")
    assert full.exit_code == 0, full.output
    assert re.search(r"demo\s+wins\s+none\s+supported", full.stdout)
    committed = _tree(workspace)
    figures = {"figures/demo/a.png", "figures/demo/a.svg", "figures/demo/claims.json"}
    assert set(committed) == {"notebooks/07_demo.ipynb"} | figures

    well = _rlkit("figures", "demo", "--check")
    assert well.exit_code == 0, well.output
    changed = _rlkit("figures", "demo", "--check", "-p", "shift=-0.5")
    assert changed.exit_code == 3
    summary = json.loads((workspace / "build" / "summary.json").read_text(encoding="utf-8"))
    notebook = summary["notebooks"]["demo"]
    (verdict,) = notebook["verdicts"]
    assert (summary["exit"], notebook["ok"], notebook["seconds"] > 0) == (3, True, True)
    assert (verdict["committed"], verdict["new"], verdict["changed"]) == ("supported", "refuted", True)
    assert verdict["drift"] == pytest.approx(1 / (0.01 * 2.5**0.5 * 2.7764451 / 5**0.5), rel=1e-4)
    assert _rlkit("figures", "demo", "--check", "--timeout", "nonsense").exit_code == 2
    assert _tree(workspace) == committed, "a check writes to build/ only"

    data = workspace / "data" / "recorded" / "demo"
    data.mkdir(parents=True)
    (data / "height.txt").write_text("0.5", encoding="utf-8")
    for name in ("a.svg", "claims.json"):
        (workspace / "figures" / "demo" / name).unlink()
    again = _rlkit("figures", "demo", "--recorded")
    assert again.exit_code == 0, again.output
    assert {name: _tree(workspace)[name] for name in committed} == committed, "byte for byte"
    assert "takes no parameters" in _rlkit("figures", "demo", "--recorded", "-p", "shift=1").stderr

    (data / "height.txt").write_text("0.6", encoding="utf-8")
    differs = _rlkit("figures", "demo", "--recorded", "--check")
    if sys.platform == "linux":
        assert differs.exit_code == 1
        assert "a.png, a.svg, claims.json differ" in differs.stderr


def test_broken_notebook_is_exit_code_1_and_the_copy_is_named(workspace: Path) -> None:
    path = workspace / "notebooks" / "07_demo.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].source = "raise RuntimeError('so it goes')"
    nbformat.write(notebook, path)
    result = _rlkit("figures", "--check")
    assert result.exit_code == 1
    assert "error: demo: cell 2 (raise RuntimeError('so it goes')) raised RuntimeError: so it goes" in result.stderr
    assert str(Path("build/executed/check/demo.ipynb")) in result.stderr
    assert json.loads((workspace / "build" / "summary.json").read_text(encoding="utf-8"))["exit"] == 1


def test_report_writes_the_table_and_its_check_notices(workspace: Path) -> None:
    from rlkit.claims import Claim, judge, write_claims

    readme = workspace / "README.md"
    assert _rlkit("report").exit_code == 1, "no README"
    readme.write_text("# Title\n", encoding="utf-8")
    assert BEGIN in _rlkit("report").stderr
    readme.write_text(f"# Title é\n{BEGIN}\nold\n{END}\nrest\n", encoding="utf-8")
    assert _rlkit("report", "--check").exit_code == 1
    assert _rlkit("report").exit_code == 0
    assert "No notebook has been recorded yet." in readme.read_text(encoding="utf-8")
    claim = Claim("wins", "It wins.", "difference", ">", 0.0, "share", "supported")
    folder = workspace / "figures" / "demo"
    folder.mkdir(parents=True)
    write_claims(folder / "claims.json", "demo", "full", "0", [judge(claim, [0.1, 0.2, 0.15, 0.1, 0.2])])
    assert _rlkit("report", "--check").exit_code == 1
    assert _rlkit("report").exit_code == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"# Title é\n{BEGIN}\n| notebook |")
    assert text.endswith(f"\n{END}\nrest\n")
    assert "| ✔ supported |" in text
    assert _rlkit("report", "--check").exit_code == 0
    (folder / "claims.json").write_text("{}", encoding="utf-8")
    assert _rlkit("report").exit_code == 1


def test_cache_says_its_size_and_clears(workspace: Path) -> None:
    from rlkit.runs.store import Store

    store = Store(workspace / "build" / "runs")
    with store.lock("k1"):
        store.write("k1", {}, {"metrics.csv": b"x" * 2_000_000})
    assert re.search(r"runs: 1 runs, 2\.0 MB", _rlkit("cache").stdout)
    assert "1 runs removed" in _rlkit("cache", "clear").stdout
    assert ": 0 runs" in _rlkit("cache", "size").stdout


def test_start_copies_the_notebooks_and_never_overwrites(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlkit import paths

    own = workspace / "elsewhere" / "own"
    assert _rlkit("start", str(own)).exit_code == 0
    copy = own / "notebooks" / "07_demo.ipynb"
    assert copy.read_bytes() == (workspace / "notebooks" / "07_demo.ipynb").read_bytes()
    copy.write_text("mine", encoding="utf-8")
    again = _rlkit("start", str(own))
    assert again.exit_code == 1
    assert "would overwrite" in again.stderr
    assert copy.read_text(encoding="utf-8") == "mine"
    monkeypatch.delenv("RLKIT_ROOT")
    monkeypatch.chdir(own / "notebooks")
    assert paths.root() == own, "notebooks there write there"


def test_interrupting_ends_the_kernel(workspace: Path) -> None:
    path = workspace / "notebooks" / "07_demo.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].source = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    nbformat.write(notebook, path)
    if os.name == "nt":
        pytest.skip("Windows consoles send Ctrl-C to a group")
    import signal

    import psutil

    def hear() -> None:  # a shell's background jobs inherit a SIGINT that is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    command = [sys.executable, "-m", "rlkit", "figures"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=hear)
    for _ in range(150):
        if (workspace / "pid").is_file() and (workspace / "pid").read_text(encoding="utf-8"):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(90) == 130
    assert not psutil.pid_exists(int((workspace / "pid").read_text(encoding="utf-8")))

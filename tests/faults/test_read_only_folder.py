"""A folder that cannot be written to: said before anything is trained, with what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rlkit
from rlkit import notebooks, plots
from rlkit.files import check_writable
from rlkit.notebooks import Options
from rlkit.runs import measure
from rlkit.runs.store import StoreError
from tests.faults.injected import read_only, tree
from tests.notebooks.conftest import cells, make, workspace

__all__ = ["cells", "make", "workspace"]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes of files")

Fault = Callable[[Path], AbstractContextManager[None]]


@contextmanager
def file_in_the_way(folder: Path) -> Iterator[None]:
    """A file where the folder should be."""
    folder.rmdir()
    folder.write_text("mine", encoding="utf-8")
    yield


FAULTS = [(file_in_the_way, "A file is where a folder should be"), (read_only, "Permission denied. Make it writable")]
both = pytest.mark.parametrize(("fault", "told"), FAULTS, ids=["file in the way", "no permission"])


def trained(**arguments: Any) -> None:
    raise AssertionError("trained, although the result cannot be kept")


@both
def test_figures_that_could_not_be_kept_are_refused_before_a_kernel_starts(
    make: Callable[..., Path], workspace: Path, fault: Fault, told: str
) -> None:
    make("raise AssertionError('a kernel ran')")
    folder = workspace / "figures"
    folder.mkdir()
    with fault(folder):
        before = tree(workspace)
        outcome = notebooks.run("demo", Options({"preset": "full"}))
        assert tree(workspace) == before
    assert not outcome.ok and f"demo: Cannot write {folder / 'demo'}: " in outcome.message
    assert told in outcome.message


@both
@pytest.mark.parametrize("name", ["figures", "data/recorded"])
def test_a_study_says_so_when_it_begins(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, told: str, name: str
) -> None:
    for variable in ("RLKIT_OUTPUT", "RLKIT_RECORDED"):
        monkeypatch.delenv(variable, raising=False)
    for each in ("figures", "data/recorded"):
        (workspace / each).mkdir(parents=True)
        (workspace / each).chmod(0o777)
    folder = workspace / name
    with fault(folder), pytest.raises(OSError, match=rf"Cannot write .*{name}/demo: .*{told}"):
        rlkit.Study("demo", preset="full")


@both
def test_a_store_that_keeps_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, told: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("RLKIT_HOME", str(home))
    with fault(home), pytest.raises(StoreError, match=rf"No run could be kept\. Cannot write .*home: .*{told}.*RLKIT_"):
        measure(trained, workers=0)


def seven() -> int:
    return 7


def test_finished_runs_of_a_read_only_store_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("RLKIT_HOME", str(home))
    measure(seven)
    with read_only(home):
        assert measure(seven) == 7


@both
def test_rlkit_train_refuses_its_folder(tmp_path: Path, fault: Fault, told: str) -> None:
    from typer.testing import CliRunner

    from rlkit.cli import app

    out = tmp_path / "run"
    out.mkdir()
    with fault(out):
        got = CliRunner().invoke(app, ["train", "grpo", "--preset", "smoke", "--out", str(out)])
    assert got.exit_code == 1 and f"error: Cannot write {out}: " in got.stderr, got.output
    assert told in got.stderr and "--out names the folder" in got.stderr


@both
def test_a_figure_names_the_file_and_leaves_the_folder_clean(tmp_path: Path, fault: Fault, told: str) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    figure = plots.points({"a": [0.1, 0.2]})
    with fault(folder), pytest.raises(OSError, match=rf"Cannot write .*figures/accuracy\.svg: .*{told}"):
        plots.save(figure, folder / "accuracy")
    assert set(tree(tmp_path)) <= {"figures"}


def test_a_folder_where_a_file_should_be_is_named_and_neither_picture_appears(tmp_path: Path) -> None:
    (tmp_path / "accuracy.png").mkdir()
    with pytest.raises(OSError, match=r"accuracy\.png: Is a directory\. A folder is where a file should be"):
        plots.save(plots.points({"a": [0.1, 0.2]}), tmp_path / "accuracy")
    assert tree(tmp_path) == {}


def test_a_folder_that_is_not_there_yet_is_tried_and_not_made(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []

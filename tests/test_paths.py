"""rlkit.paths: a checkout, a folder made by `rlkit start`, a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlkit import paths

HERE = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLKIT_ROOT", raising=False)
    monkeypatch.delenv("RLKIT_HOME", raising=False)


def _as_wheel(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    package = folder / "site-packages" / "rlkit"
    package.mkdir(parents=True)
    monkeypatch.setattr(paths, "_PACKAGE", package)
    return package / "_data"


def test_checkout_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.root() == paths.source() == HERE
    assert paths.notebooks() == HERE / "notebooks"
    assert paths.bases() == HERE / "data" / "bases"
    assert paths.recorded("x", write=True) == HERE / "data" / "recorded" / "x"
    assert paths.figures("x") == HERE / "figures" / "x"
    assert paths.home() == HERE / "build" / "runs"


def test_wheel_reads_its_own_data_and_writes_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, here = _as_wheel(monkeypatch, tmp_path), tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert paths.checkout() is None
    assert (paths.notebooks(), paths.bases()) == (data / "notebooks", data / "bases")
    assert paths.recorded("x") == data / "recorded" / "x"
    assert paths.recorded("x", write=True) == here / "data" / "recorded" / "x"
    assert paths.committed("x") == data / "figures" / "x"
    assert paths.figures("x") == here / "figures" / "x"
    assert here not in paths.home().parents, "a cache that every folder shares"


def test_started_folder_is_the_workspace_of_everything_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as_wheel(monkeypatch, tmp_path)
    own = tmp_path / "own"
    (own / "notebooks").mkdir(parents=True)
    (own / paths.MARKER).touch()
    monkeypatch.chdir(own / "notebooks")
    assert paths.root() == own
    assert paths.notebooks() == own / "notebooks"
    assert paths.home() == own / "build" / "runs"


def test_own_recorded_data_and_figures_come_before_those_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as_wheel(monkeypatch, tmp_path)
    monkeypatch.setenv("RLKIT_ROOT", str(tmp_path))
    for folder in ("data/recorded/x", "figures/x"):
        (tmp_path / folder).mkdir(parents=True)
    assert paths.recorded("x") == tmp_path / "data" / "recorded" / "x"
    assert paths.committed("x") == tmp_path / "figures" / "x"


def test_environment_names_workspace_and_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLKIT_ROOT", str(tmp_path))
    assert paths.root() == tmp_path
    assert paths.home() == tmp_path / "build" / "runs"
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "elsewhere"))
    assert paths.home() == tmp_path / "elsewhere"
    assert paths.bases() == HERE / "data" / "bases", "a workspace without bases uses those that rlkit came with"

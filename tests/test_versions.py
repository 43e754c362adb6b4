"""A release of TRL or transformers that was not tested is named once, with the tested range and the pip line."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from rlkit import versions

ROOT = Path(__file__).resolve().parent.parent


def pretend(folder: Path, name: str, version: str) -> None:
    """Metadata of an installed release, read by `importlib.metadata` as any other."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")


def test_the_ranges_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {need.name: need.specifier for need in map(Requirement, project["dependencies"])}
    assert {name: SpecifierSet(text) for name, text in versions.TESTED.items()} == {
        name: asked[name] for name in versions.TESTED
    }


def test_what_is_pinned_is_no_reason_to_complain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        if name in versions.TESTED:
            pretend(tmp_path, name, version)
    monkeypatch.syspath_prepend(tmp_path)
    assert versions.complaints() == []


@pytest.mark.parametrize(("name", "version"), [("trl", "0.20.0"), ("trl", "9.0.0"), ("transformers", "4.57.0")])
def test_another_release_is_named_with_the_pip_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str
) -> None:
    pretend(tmp_path, name, version)
    monkeypatch.syspath_prepend(tmp_path)
    (line,) = [line for line in versions.complaints() if line.startswith(f"{name} ")]
    assert f"{name} {version} is installed" in line
    assert f'pip install "{name}{versions.TESTED[name]}"' in line


def test_the_broken_release_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, "trl", "1.15.0")
    monkeypatch.syspath_prepend(tmp_path)
    assert any("_ChunkedLogProbFunction is None" in line for line in versions.complaints())


def test_the_warning_comes_once_with_the_trainers_and_not_with_rlkit(tmp_path: Path) -> None:
    pretend(tmp_path, "trl", "9.0.0")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import rlkit; print("imported", file=sys.stderr, flush=True)
import rlkit.trainers; from rlkit.versions import warn_once; warn_once()
assert "trl" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    before, _, after = done.stderr.partition("imported")
    assert "trl 9.0.0" not in before and after.count("trl 9.0.0 is installed") == 1


def test_asking_takes_less_than_5_ms_of_cpu() -> None:
    versions.complaints()  # what it imports, TRL imports anyway
    seconds = []
    for _ in range(5):
        started = time.process_time()
        versions.complaints()
        seconds.append(time.process_time() - started)
    assert min(seconds) < 5e-3

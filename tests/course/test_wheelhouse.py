from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlkit import paths
from rlkit.course import wheelhouse


def test_the_command_takes_this_checkout_with_its_constraints(tmp_path: Path) -> None:
    command = wheelhouse.command(tmp_path, "https://example.org/cpu")
    assert command[:4] == [sys.executable, "-m", "pip", "wheel"]
    assert command[-1] == str(paths.checkout())
    assert command[command.index("--constraint") + 1] == str(paths.source() / "constraints.txt")
    assert command[command.index("--extra-index-url") + 1] == "https://example.org/cpu"
    assert "--extra-index-url" not in wheelhouse.command(tmp_path)


def test_the_index_that_torch_came_from_is_read_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert wheelhouse.recorded_index() == ""
    (tmp_path / "rlkit-setup.json").write_text('{"torch_index": "https://example.org/cpu"}')
    assert wheelhouse.recorded_index() == "https://example.org/cpu"


def test_what_pip_cannot_do_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real pip, asked for something that no index can have."""
    failing = [sys.executable, "-m", "pip", "wheel", "--no-index", "--wheel-dir", str(tmp_path), "no-such-thing"]
    monkeypatch.setattr(wheelhouse, "command", lambda *arguments: failing)
    with pytest.raises(OSError, match="pip could not collect everything"):
        wheelhouse.fill(tmp_path)


def test_size_counts_what_is_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.whl").write_bytes(b"12345")
    nothing = [sys.executable, "-c", "pass"]
    monkeypatch.setattr(wheelhouse, "command", lambda *arguments: nothing)
    assert wheelhouse.fill(tmp_path) == 5
    assert str(tmp_path) in wheelhouse.how_to_install(tmp_path)
    assert subprocess.run(nothing, check=False).returncode == 0

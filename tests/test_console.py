from __future__ import annotations

from pathlib import Path

import pytest
import typer

from rlkit.console import said_plainly, short


def test_errors_are_one_line_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, said_plainly():
        raise ValueError("the seed is missing")
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == "error: the seed is missing\n"


def test_paths_are_short_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert short(tmp_path / "a" / "b") == str(Path("a") / "b")
    assert short(tmp_path.parent) == str(tmp_path.parent)

"""The linters and the type checker find nothing, so that `make test` is one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "ruff": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_finds_nothing(name: str) -> None:
    command = [sys.executable, "-m", *COMMANDS[name]]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
    assert result.returncode == 0, f"{' '.join(COMMANDS[name])}\n{result.stdout}{result.stderr}"

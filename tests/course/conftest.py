"""Notebooks that students might hand in, for the exercises of the tour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

Write = Callable[..., Path]

IMPORTS = "import rlkit\nimport torch"
ADVANTAGE = """def advantage(rewards):
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
rlkit.check("tour.advantage", advantage)"""
SILENT = """def silent(p, G):
    return p**G + (1 - p) ** G
rlkit.check("tour.silent", silent)"""
REPAIRED = """def repaired(rewards):
    return rewards - rewards.mean(1, keepdim=True)
rlkit.check("tour.repaired", repaired)"""


@pytest.fixture
def right() -> list[str]:
    """Cells with right solutions of the tour's three exercises."""
    return [IMPORTS, ADVANTAGE, SILENT, REPAIRED]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a notebook of code cells; returns its path."""

    def writer(*cells: str, name: str = "anna/00_tour.ipynb") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
        return path

    return writer

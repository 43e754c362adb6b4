"""One constant writes the badge and the cell of all notebooks, and takes them away again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from rlkit import notebooks
from rlkit.notebooks import colab
from rlkit.notebooks.lint import lint
from rlkit.notebooks.parameters import read_parameters

ADDRESS = "https://github.com/owner/name"


@pytest.mark.parametrize("slug", list(notebooks.available()))
def test_on_and_off_again_leaves_the_notebook_as_it_was(slug: str) -> None:
    plain, file = colab.agreed(notebooks.read(slug), f"{slug}.ipynb", ""), f"{slug}.ipynb"
    on = colab.agreed(plain, file, ADDRESS)
    assert colab.agreed(on, file, ADDRESS) == on
    assert colab.agreed(on, file, "") == plain
    assert lint(on) == []
    assert list(read_parameters(on)) == list(read_parameters(plain))
    assert f"{ADDRESS.removeprefix('https://github.com/')}/blob/main/notebooks/{file}" in on.cells[0].source


def test_the_cell_does_nothing_elsewhere_and_installs_on_colab() -> None:
    """The address is one that pip can refuse without a network: that it is asked is what counts."""
    code = colab.source("file:///nowhere")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    there = f"import sys, types\nsys.modules['google.colab'] = types.ModuleType('colab')\n{code}"
    result = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=False)
    assert result.returncode and "rlkit-lab @ git+file:///nowhere" in result.stderr


def test_a_notebook_that_drifted_is_found_and_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notebooks" / "00_tour.ipynb"
    path.parent.mkdir()
    nbformat.write(notebooks.read("tour"), path)
    monkeypatch.setattr(colab, "REPOSITORY", ADDRESS)
    assert lint(path) == ["badge or cell for Colab differ from the constant: run `python -m rlkit.notebooks.colab`"]
    assert colab.write(path, path.parent)
    assert lint(path) == []
    assert not colab.write(path, path.parent)
    monkeypatch.setattr(colab, "REPOSITORY", "")
    assert colab.write(path, path.parent)
    assert nbformat.read(path, as_version=4) == colab.agreed(notebooks.read("tour"), path.name, "")

"""Small notebooks, written to a workspace of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

Maker = Callable[..., Path]

PARAMETERS = """preset = "tiny"
seeds = 0
lr = 1e-5
answer = True
model = ""
sizes = [2, 4]"""

DRAW = """import os
from pathlib import Path
from rlkit import paths, plots
output = Path(os.environ["RLKIT_OUTPUT"] or paths.figures("demo"))

def figure(name, height=1.0):
    fig = plots.points({"a": [0.1, 0.2], "b": [height, 0.3]}, title=name)
    plots.save(fig, output / name)"""

JUDGE = """from rlkit import claims
claim = claims.Claim("wins", "It wins.", "difference", ">", 0.0, "share", "supported")
values = [shift + 0.01 * k for k in range(5)]
claims.write_claims(output / "claims.json", "demo", preset, "0", [claims.judge(claim, values)])"""


@pytest.fixture
def cells() -> dict[str, str]:
    """Cells that define `figure(name)`, and that judge one claim by the number `shift`."""
    return {"draw": DRAW, "judge": JUDGE}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that rlkit takes for its workspace."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("RLKIT_ROOT", str(tmp_path))
    monkeypatch.delenv("RLKIT_HOME", raising=False)
    return tmp_path


@pytest.fixture
def make(workspace: Path) -> Maker:
    """Write a notebook of a parameters cell and the given code cells; returns its path."""

    def maker(*cells: str, name: str = "07_demo", parameters: str | None = PARAMETERS, kernel: str = "python3") -> Path:
        notebook = nbformat.v4.new_notebook()
        if kernel:
            notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
        if parameters is not None:
            notebook.cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
        notebook.cells += [nbformat.v4.new_code_cell(source) for source in cells]
        path = workspace / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        return path

    return maker

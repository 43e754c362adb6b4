"""`rlkit new method`: what it writes passes the project's checks, and nothing is half-written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from rlkit import paths, scaffold
from rlkit.notebooks.lint import lint
from rlkit.scaffold import check_name, new_method

ROOT = Path(__file__).parents[1]


def _checkout(folder: Path) -> Path:
    """A copy of what the project's checks read."""
    for name in ("rlkit", "tests", "notebooks", "data/bases"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def _run(folder: Path, *command: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(folder), "RLKIT_ROOT": str(folder), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


@pytest.mark.parametrize("name", ["ab", "a_method_with_a_name_of_thirty"])
def test_the_files_pass_the_linters(name: str, tmp_path: Path) -> None:
    _checkout(tmp_path)
    files = new_method(name, tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in files] == [
        f"rlkit/methods/{name}.py",
        f"notebooks/{name}.ipynb",
        f"tests/methods/test_{name}.py",
    ]
    assert lint(files[1]) == []
    nbformat.validate(nbformat.read(files[1], as_version=4))
    _run(tmp_path, "ruff", "check", *map(str, files))
    _run(tmp_path, "ruff", "format", "--check", *map(str, files))
    assert "my_method" not in "".join(path.read_text(encoding="utf-8") for path in files)


@pytest.mark.slow
def test_the_method_passes_the_contract_its_test_and_its_notebook_runs(tmp_path: Path) -> None:
    folder = _checkout(tmp_path)
    new_method("half_mean", folder)
    own = ["tests/methods/test_half_mean.py", "tests/methods/test_contract.py"]
    _run(folder, "pytest", "-p", "no:cacheprovider", "-q", "-k", "half_mean", *own)
    _run(folder, "mypy", "rlkit/methods/half_mean.py")
    _run(folder, "rlkit", "figures", "half_mean", "--preset", "smoke")
    assert list((folder / "build" / "figures" / "smoke" / "half_mean").glob("*.svg"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Half-Mean", "for example 'half_mean'"),
        ("half mean", "for example 'half_mean'"),
        ("../half", "for example 'half'"),
        ("lambda", "cannot be a method's name"),
        ("2_means", "a letter first"),
        ("", "a letter first"),
        ("x" * 31, "at most 30"),
        ("mc_grpo", "There is a method 'mc_grpo' already"),
    ],
)
def test_bad_names_are_errors(name: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        new_method(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_kept_and_nothing_else_is_written(tmp_path: Path) -> None:
    taken = tmp_path / "notebooks" / "idea.ipynb"
    taken.parent.mkdir()
    taken.write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match=r"idea\.ipynb is there already"):
        new_method("idea", tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["idea.ipynb"]
    assert taken.read_text(encoding="utf-8") == "mine"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "tests").write_text("a file where a folder has to be", encoding="utf-8")
    with pytest.raises(OSError, match="tests"):
        new_method("idea", tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["tests"]


def test_without_a_checkout_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "checkout", lambda: None)
    with pytest.raises(ValueError, match=r"pip install -e \.`, or build a `rlkit\.Method` in a notebook cell"):
        new_method("idea")


def test_every_template_is_used_and_names_are_free() -> None:
    check_name("half_mean")
    assert set(scaffold.TEMPLATES) == {p.name for p in (Path(scaffold.__file__).parent / "templates").iterdir()}

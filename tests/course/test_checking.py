"""Notebooks of students, executed in processes of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlkit.course.checking import Limits, check_notebook
from tests.course.conftest import ADVANTAGE, IMPORTS, REPAIRED, SILENT, Write

NAMES = ["tour.advantage", "tour.repaired", "tour.silent"]
QUICK = Limits(seconds=5, megabytes=400)
AMPLE = Limits(seconds=60, megabytes=400)


def found(path: Path, limits: Limits = AMPLE) -> dict[str, tuple[str, str]]:
    results = check_notebook(path, limits)
    return {result.exercise: (result.result, result.message) for result in results}


def test_right_solutions_pass_and_missing_ones_are_said(write: Write) -> None:
    """A cell that fails but is not needed does not matter; an exercise whose cell is gone does."""
    results = found(write(IMPORTS, "1 / 0", ADVANTAGE, SILENT))
    assert sorted(results) == NAMES
    assert results["tour.advantage"][0] == results["tour.silent"][0] == "passed"
    assert results["tour.repaired"][0] == "missing"


@pytest.mark.slow
def test_a_loop_without_end_stops_alone(write: Write) -> None:
    endless = 'def silent(p, G):\n    while True:\n        pass\nrlkit.check("tour.silent", silent)'
    results = found(write(IMPORTS, endless, ADVANTAGE, REPAIRED), QUICK)
    assert results["tour.silent"][0] == "time limit"
    assert results["tour.advantage"][0] == results["tour.repaired"][0] == "passed"


@pytest.mark.slow
def test_memory_is_limited(write: Write) -> None:
    greedy = 'def silent(p, G):\n    return len(bytearray(10**9)) * 0.0\nrlkit.check("tour.silent", silent)'
    result, message = found(write(IMPORTS, greedy))["tour.silent"]
    assert result in ("failed", "memory limit", "died")
    assert result != "failed" or "MemoryError" in message


@pytest.mark.slow
def test_a_process_that_ends_itself_is_a_result(write: Write) -> None:
    ends = 'import os\ndef silent(p, G):\n    os._exit(0)\nrlkit.check("tour.silent", silent)'
    results = found(write(IMPORTS, ends, ADVANTAGE))
    assert results["tour.silent"][0] == "died"
    assert results["tour.advantage"][0] == "passed"


@pytest.mark.slow
def test_wrong_code_is_explained(write: Write) -> None:
    """A wrong result, a name that nothing binds, no Python, a blank."""
    wrong = 'def silent(p, G):\n    return p**G\nrlkit.check("tour.silent", silent)'
    syntax = 'def repaired(rewards:\n    return\nrlkit.check("tour.repaired", repaired)'
    results = found(write(IMPORTS, wrong, "helper = other()", 'rlkit.check("tour.advantage", helper)', syntax))
    assert results["tour.silent"][0] == "failed" and "case" in results["tour.silent"][1]
    assert "NameError: name 'other'" in results["tour.advantage"][1]
    assert "not Python" in results["tour.repaired"][1]


@pytest.mark.slow
def test_code_sees_no_secret_and_leaves_no_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    spy = (
        "import os, pathlib\npathlib.Path('left').write_text('x')\nassert 'HF_TOKEN' not in os.environ\n"
        f"assert os.getcwd() != {os.getcwd()!r}\n"
    )
    assert found(write(IMPORTS, spy + SILENT))["tour.silent"] == ("passed", "right in all 8 cases.")
    assert not list(tmp_path.rglob("left")) and not Path("left").exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"cells": 3}', "\udcff"], ids=["empty", "cut", "list", "odd", "bytes"]
)
def test_a_file_that_is_no_notebook_is_a_result(tmp_path: Path, content: str) -> None:
    path = tmp_path / "00_tour.ipynb"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    (result,) = check_notebook(path)
    assert result.result == "unreadable" and result.message


def test_a_notebook_without_exercises_is_a_result(write: Write) -> None:
    (result,) = check_notebook(write("x = 1", name="mine.ipynb"))
    assert result.result == "unreadable"


def test_a_notebook_that_lost_all_its_checks_misses_them(write: Write) -> None:
    assert [result.result for result in check_notebook(write("x = 1"))] == ["missing"] * 3

"""Every exercise: its own reference passes, repeatably, and each named mistake fails and is recognised."""

from __future__ import annotations

import ast
import json

import pytest
import torch

from rlkit import paths
from rlkit.exercises import check, names
from rlkit.exercises.checking import find

MISTAKES = [(name, sentence) for name in names() for sentence in find(name).mistakes]


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLKIT_STRICT_CHECKS", raising=False)


@pytest.mark.parametrize("name", names())
def test_our_own_function_passes_and_cases_are_repeatable(name: str) -> None:
    exercise = find(name)
    assert check(name, exercise.reference).passed
    assert exercise.what
    first, again = ([repr((case.args, dict(case.kwargs))) for case in exercise.calls()] for _ in range(2))
    assert first == again


@pytest.mark.parametrize(("name", "sentence"), MISTAKES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(MISTAKES)])
def test_each_mistake_is_found_and_named(name: str, sentence: str) -> None:
    outcome = check(name, find(name).mistakes[sentence])
    assert not outcome.passed
    assert outcome.details["hint"] == sentence


@pytest.mark.parametrize("name", names())
def test_nothing_and_zeros_fail(name: str) -> None:
    assert not check(name, lambda *args: None).passed
    assert not check(name, lambda first, *rest: torch.zeros_like(first)).passed


@pytest.mark.parametrize("name", names())
def test_the_notebook_has_a_solution_between_nbgraders_marks(name: str) -> None:
    """The solution itself is executed and checked whenever the notebook runs: there a failed check is an error."""
    slug, _, own = name.partition(".")
    path = next(path for path in paths.notebooks().rglob("*.ipynb") if path.stem.endswith(slug))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (source,) = [text for text in sources if f'rlkit.check("{name}"' in text]
    lines = [line.strip() for line in source.splitlines()]
    begin, end = lines.index("### BEGIN SOLUTION"), lines.index("### END SOLUTION")
    assert begin + 1 < end
    defined = [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    assert own in defined

"""Parameters of notebooks: E29 (no cell), E30 (misspelt), E31 (types), secrets."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest

from rlkit.notebooks.parameters import Parameter, ParameterError, coerce, read_parameters


def _notebook(*sources: str, tagged: tuple[int, ...] = (0,)) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for number in tagged:
        cells[number].metadata["tags"] = ["parameters"]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), *cells])


def _known(source: str) -> dict[str, Parameter]:
    return read_parameters(_notebook(source))


def test_names_types_and_defaults_are_read_in_order() -> None:
    known = _known(
        '"""Which."""\npreset = "tiny"  # the dial\nseeds: int = 0\nsizes = [\n    2,\n    4,\n]\nlr = -1e-5\n'
    )
    assert list(known) == ["preset", "seeds", "sizes", "lr"]
    assert [item.default for item in known.values()] == ["tiny", 0, [2, 4], -1e-5]
    assert [item.type for item in known.values()] == [str, int, list[int], float]


@pytest.mark.parametrize(
    ("notebook", "message"),
    [
        (_notebook("a = 1", tagged=()), "no cell is tagged 'parameters'"),
        (
            _notebook("import os", "a = 1", tagged=(1,)),
            "cell 3 is tagged .* but the first code cell is cell 2",
        ),
        (_notebook("a = 1", "b = 1", tagged=(0, 1)), "cells 2, 3 are all tagged"),
        (_notebook("a = 1\nb = a + 1"), "not `b = a \\+ 1`"),
        (_notebook("import os\na = 1"), "not `import os`"),
        (_notebook("a, b = 1, 2"), r"not `\(?a, b\)? = "),
        (_notebook("a = open('x')"), "name = literal"),
        (_notebook("a = (1"), "not Python"),
        (_notebook("a: Path = 'x'"), "annotate parameters with"),
        (_notebook("a: __import__('os').sep = 'x'"), "annotate parameters with"),
    ],
)
def test_parameters_cell_that_is_missing_misplaced_or_computes(notebook: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_parameters(notebook)


DEFAULTS = (
    'lr = 1e-5\nsteps = 0\nfast = False\nmodel = ""\nsizes = [2]\nrates = (0.1,)\nnote: str | None = None\nany = None'
)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("lr", "1e-5", 1e-5),  # YAML reads 1e-5 as a string
        ("lr", 1, 1.0),
        ("steps", "12", 12),
        ("steps", 12.0, 12),
        ("fast", "no", False),
        ("fast", "yes", True),
        ("fast", False, False),
        ("model", "no", "no"),
        ("model", "1e-5", "1e-5"),
        ("sizes", "[2, 8]", [2, 8]),
        ("sizes", ["2", "8"], [2, 8]),
        ("rates", "(0.5, 1)", (0.5, 1.0)),
        ("note", "hello", "hello"),
        ("note", "None", None),
        ("any", "3", 3),
        ("any", "text", "text"),
    ],
)
def test_values_take_the_type_of_the_default(name: str, given: Any, value: Any) -> None:
    result = coerce(_known(DEFAULTS), {name: given})[name]
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("lr", "fast"),
        ("lr", "nan"),
        ("lr", "inf"),
        ("lr", False),
        ("lr", None),
        ("lr", ""),
        ("steps", False),  # YAML's `no`
        ("steps", "1e-5"),
        ("steps", 1.5),
        ("steps", "no"),
        ("fast", "maybe"),
        ("fast", 2),
        ("model", False),  # YAML's `no`
        ("model", 3),
        ("sizes", "[2, 'x']"),
        ("sizes", "2"),
    ],
)
def test_values_of_another_type_are_refused_with_name_default_and_value(name: str, given: Any) -> None:
    with pytest.raises(ParameterError, match=rf"^parameter {name}=.* is of type .*; {re.escape(repr(given))} is not: "):
        coerce(_known(DEFAULTS), {name: given})


@pytest.mark.parametrize(("given", "value"), [("3", 3), (3, 3), ("[17]", [17]), ([17, 18], [17, 18])], ids=str)
def test_seeds_are_a_number_or_a_list_of_ones_own(given: Any, value: Any) -> None:
    assert coerce(_known("seeds = 0"), {"seeds": given}) == {"seeds": value}


@pytest.mark.parametrize("given", ["no", False, "True", "[1.5]", "x"], ids=str)
def test_what_is_no_seed_is_refused(given: Any) -> None:
    with pytest.raises(ParameterError, match="parameter seeds=0 is of type int"):
        coerce(_known("seeds = 0"), {"seeds": given})


def test_misspelt_name_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match=r"unknown parameter 'step'.*'steps'.*lr=1e-05, steps=0"):
        coerce(_known(DEFAULTS), {"step": 1})


@pytest.mark.parametrize("name", ["hf_token", "HF_TOKEN", "api_key", "password", "client_secret", "credentials"])
def test_names_of_secrets_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="looks like a secret") as caught:
        coerce(_known(f"{name} = ''"), {name: "swordfish"})
    assert "swordfish" not in str(caught.value)


def test_values_that_look_like_secrets_are_refused_under_any_name() -> None:
    value = "hf_" + "a1B2" * 8
    with pytest.raises(ParameterError, match="looks like a secret") as caught:
        coerce(_known("model = ''"), {"model": value})
    assert value not in str(caught.value)


@pytest.mark.parametrize("name", ["max_new_tokens", "generated_tokens", "tokens", "token_weight", "key", "monkey"])
def test_counts_of_tokens_are_no_secrets(name: str) -> None:
    assert coerce(_known(f"{name} = 1"), {name: 2}) == {name: 2}

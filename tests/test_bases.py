"""Tokenizer, corpus and pretraining of the tiny bases; the committed base against its own recipe."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlkit import paths
from rlkit.basecard import evaluate
from rlkit.bases import CHARACTERS, CURVE, RECIPES, build_base, corpus, get_recipe, pretrain, tokenizer
from rlkit.machine import machine_class
from rlkit.models import load_model
from rlkit.tasks.base import get_task, split_of
from rlkit.tasks.chain import graded

CURVE_FILE = paths.bases() / "chain" / "curve.json"


def test_a_prompt_gets_exactly_one_start_token() -> None:
    for vocabulary in (tokenizer(), load_model("chain")[1]):
        assert vocabulary("14-1+15?").input_ids == [1, 5, 8, 15, 5, 14, 5, 9, 19]
        assert vocabulary(["1?", "12?"], padding=True).input_ids == [[0, 1, 5, 19], [1, 5, 6, 19]]


@given(st.text(alphabet=CHARACTERS, max_size=60))
def test_texts_survive_the_tokenizer(text: str) -> None:
    vocabulary = tokenizer()
    ids = vocabulary(text).input_ids
    assert len(ids) == len(text) + 1
    assert vocabulary.decode(ids, skip_special_tokens=True) == text


def test_unknown_characters_are_not_padding() -> None:
    assert tokenizer()("1\né?").input_ids == [1, 5, 3, 3, 19]


def test_corpus_mixes_careful_and_hasty_answers_to_train_problems() -> None:
    recipe = RECIPES["chain"]
    rows = list(itertools.islice(corpus(recipe), 4000))
    assert {split_of(prompt.rstrip("?")) for prompt, _ in rows} == {"train"}
    careful = sum("=" in answer for _, answer in rows) / len(rows)
    assert careful == pytest.approx(sum(recipe.careful) / 2, abs=0.04)
    assert rows == list(itertools.islice(corpus(recipe), 4000))


def test_a_corpus_without_slips_is_right() -> None:
    recipe = dataclasses.replace(RECIPES["chain"], slip=0.0, careful=(1.0, 1.0))
    task = get_task(recipe.task)
    prompt, answer = next(corpus(recipe))
    steps = answer.split("#")[0]
    assert len(steps.split(";")) == task.terms - 1
    assert graded([answer], [answer.split("#")[1]], [steps]) == [2.0]
    assert plain_sum(prompt) == int(answer.split("#")[1])


def plain_sum(prompt: str) -> int:
    """The value of a prompt, computed another way than the task does."""
    return sum(int(number) for number in prompt.rstrip("?").replace("-", "+-").split("+"))


def test_first_steps_follow_the_recorded_curve() -> None:
    """Exactly on the machine class that the base was built on; elsewhere to 1e-3."""
    recorded = json.loads(CURVE_FILE.read_text(encoding="utf-8"))
    assert len(recorded["loss"]) == CURVE
    _, losses = pretrain(RECIPES["chain"], steps=CURVE)
    if recorded["machine"] == machine_class():
        assert losses == recorded["loss"]
    else:
        assert losses == pytest.approx(recorded["loss"], abs=1e-3)


def test_curve_was_recorded_with_the_recipe() -> None:
    recorded = json.loads(CURVE_FILE.read_text(encoding="utf-8"))["recipe"]
    recipe = RECIPES["chain"]
    assert {k: tuple(v) if isinstance(v, list) else v for k, v in recorded.items()} == recipe.__dict__


def test_base_fits_the_task_that_it_was_made_for() -> None:
    assert get_task(RECIPES["chain"].task) == get_task("chain")


def test_build_writes_a_folder_that_loads(tmp_path: Path) -> None:
    losses = build_base("chain", tmp_path / "one", steps=2)
    again = build_base("chain", tmp_path / "two", steps=2)
    assert losses == again
    names = {path.name for path in (paths.bases() / "chain").iterdir()}
    assert {path.name for path in (tmp_path / "one").iterdir()} == names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert json.loads((tmp_path / "one" / "tokenizer.json").read_text(encoding="utf-8"))["padding"] is None
    model, vocabulary = load_model(tmp_path / "one")
    assert model.config.vocab_size == len(vocabulary)


def test_unknown_base_is_an_error() -> None:
    with pytest.raises(ValueError, match="Did you mean 'chain'"):
        get_recipe("chian")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rebuild_gives_the_committed_base(tmp_path: Path) -> None:
    build_base("chain", tmp_path)
    committed, rebuilt = load_model("chain")[0], load_model(tmp_path)[0]
    if json.loads(CURVE_FILE.read_text(encoding="utf-8"))["machine"] == machine_class():
        for (name, old), new in zip(committed.named_parameters(), rebuilt.parameters(), strict=True):
            assert torch.equal(old, new), name
        for name in ("curve.json", "README.md"):
            assert (tmp_path / name).read_bytes() == (paths.bases() / "chain" / name).read_bytes(), name
    else:
        measured = [evaluate(model, tokenizer(), get_task("chain")) for model in (committed, rebuilt)]
        assert measured[0]["careful_share"] == pytest.approx(measured[1]["careful_share"], abs=0.1)
        assert measured[0]["careful_right"] == pytest.approx(measured[1]["careful_right"], abs=0.15)

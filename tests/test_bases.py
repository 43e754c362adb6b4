"""Tokenizer, corpus and pretraining of the tiny bases; the committed base against its own recipe."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlkit import paths
from rlkit.basecard_planted import evaluate as roles_of
from rlkit.bases import CHARACTERS, CURVE, RECIPES, build_base, get_recipe, pretrain, tokenizer
from rlkit.machine import machine_class
from rlkit.models import load_model
from rlkit.tasks.base import get_task, split_of
from rlkit.tasks.chain import graded
from rlkit.tasks.planted import FILLERS, checksum_of, digits_of, problem_of, roles

BASES = list(RECIPES)


def recorded(name: str) -> dict[str, Any]:
    """What was written down when the base was built."""
    curve: dict[str, Any] = json.loads((paths.bases() / name / "curve.json").read_text(encoding="utf-8"))
    return curve


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
    rows = list(itertools.islice(recipe.corpus(), 4000))
    assert {split_of(prompt.rstrip("?")) for prompt, _ in rows} == {"train"}
    careful = sum("=" in answer for _, answer in rows) / len(rows)
    assert careful == pytest.approx(sum(recipe.careful) / 2, abs=0.04)
    assert rows == list(itertools.islice(recipe.corpus(), 4000))


def test_a_corpus_without_slips_is_right() -> None:
    recipe = dataclasses.replace(RECIPES["chain"], slip=0.0, careful=(1.0, 1.0))
    task = get_task(recipe.task)
    prompt, answer = next(recipe.corpus())
    steps = answer.split("#")[0]
    assert len(steps.split(";")) == task.terms - 1
    assert graded([answer], [answer.split("#")[1]], [steps]) == [2.0]
    assert plain_sum(prompt) == int(answer.split("#")[1])


def plain_sum(prompt: str) -> int:
    """The value of a prompt, computed another way than the task does."""
    return sum(int(number) for number in prompt.rstrip("?").replace("-", "+-").split("+"))


@pytest.mark.parametrize("name", BASES)
def test_first_steps_follow_the_recorded_curve(name: str) -> None:
    """Exactly on the machine class that the base was built on; elsewhere to 1e-3."""
    curve = recorded(name)
    assert len(curve["loss"]) == CURVE
    _, losses = pretrain(RECIPES[name], steps=CURVE)
    if curve["machine"] == machine_class():
        assert losses == curve["loss"]
    else:
        assert losses == pytest.approx(curve["loss"], abs=1e-3)


@pytest.mark.parametrize("name", BASES)
def test_curve_was_recorded_with_the_recipe(name: str) -> None:
    recipe = recorded(name)["recipe"]
    assert {k: tuple(v) if isinstance(v, list) else v for k, v in recipe.items()} == RECIPES[name].__dict__


def test_bases_fit_the_tasks_that_they_were_made_for() -> None:
    assert get_task(RECIPES["chain"].task) == get_task("chain")
    task = get_task("planted")
    assert {RECIPES[name].task for name in task.bases.values()} == {task.name}


def planted(**changes: Any) -> list[tuple[str, str]]:
    """The first 1000 rows of a planted corpus."""
    recipe = dataclasses.replace(RECIPES["planted_student"], **changes)
    return list(itertools.islice(recipe.corpus(), 1000))


def test_the_teacher_is_taught_right_sums_and_checksums() -> None:
    rows = list(itertools.islice(RECIPES["planted_teacher"].corpus(), 1000))
    assert {split_of(prompt) for prompt, _ in rows} == {"train"}
    assert len({prompt for prompt, _ in rows}) == 1000
    for prompt, answer in rows:
        first, second = map(int, prompt.rstrip("=").split("+"))
        assert int(answer[11] + answer[7] + answer[3]) == first + second
        assert int(answer[12]) == sum(map(int, answer[3:12:4])) % 10
        assert set(answer[2:12:4]) <= set(FILLERS)
    assert rows == list(itertools.islice(RECIPES["planted_teacher"].corpus(), 1000))


@pytest.mark.parametrize("carried", [0.0, 0.3, 1.0])
def test_the_student_is_taught_a_share_of_the_carries_and_no_checksum(carried: float) -> None:
    right: dict[str, list[bool]] = {"plain": [], "carry": [], "checksum": []}
    for prompt, answer in planted(carried=carried):
        best = problem_of(prompt).completion(problem_of(prompt).total, checksum_of(digits_of(answer, 2)[:3]), "www")
        for role, drawn, wanted in zip(roles(prompt), answer, best, strict=False):
            if role in right:
                right[role].append(drawn == wanted)
    share = {role: sum(values) / len(values) for role, values in right.items()}
    assert share == {"plain": 1.0, "carry": pytest.approx(carried, abs=0.05), "checksum": pytest.approx(0.1, abs=0.04)}


def test_the_planted_bases_are_what_their_roles_need() -> None:
    """The student sure and wrong at carries, unsure at the checksum; the teacher right everywhere."""
    task = get_task("planted")
    student, teacher, collapsed = (
        roles_of(load_model(name)[0], load_model(name)[1], task, size=128)
        for name in ("planted_student", "planted_teacher", "planted_collapsed")
    )
    assert min(teacher[f"right_{role}"] for role in ("plain", "carry", "checksum")) > 0.95
    assert teacher["checked"] > 0.98
    assert 0.05 < student["right_carry"] < 0.15
    assert student["entropy_carry"] < 0.2 < 0.7 < student["entropy_checksum"]
    assert student["right_plain"] > 0.95
    assert collapsed["right_carry"] < 1e-3


@pytest.mark.parametrize("name", BASES)
def test_bases_are_small_and_their_tokenizers_agree(name: str) -> None:
    model, vocabulary = load_model(name)
    assert (paths.bases() / name / "model.safetensors").stat().st_size < 1_000_000
    assert vocabulary.get_vocab() == tokenizer(RECIPES[name].characters).get_vocab()
    assert model.config.vocab_size == len(vocabulary)


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
@pytest.mark.parametrize("name", BASES)
def test_rebuild_gives_the_committed_base(name: str, tmp_path: Path) -> None:
    build_base(name, tmp_path)
    committed, rebuilt = load_model(name)[0], load_model(tmp_path)[0]
    if recorded(name)["machine"] == machine_class():
        for (weight, old), new in zip(committed.named_parameters(), rebuilt.parameters(), strict=True):
            assert torch.equal(old, new), weight
        for file in ("curve.json", "README.md"):
            assert (tmp_path / file).read_bytes() == (paths.bases() / name / file).read_bytes(), file
    else:
        recipe = RECIPES[name]
        old, new = (recipe.measure(model, tokenizer(recipe.characters)) for model in (committed, rebuilt))
        for measured, value in old.items():
            if measured != "characters":  # a count, and it follows from the shares
                assert new[measured] == pytest.approx(value, abs=0.15), measured

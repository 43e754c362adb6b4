"""Loading: presets, bases, folders and model objects."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlkit import paths
from rlkit.models import base_names, load, load_model
from rlkit.tasks.base import get_task


def test_load_gives_a_fresh_model_each_time() -> None:
    one, two = load("tiny"), load("chain")
    assert one.task == two.task
    assert one.teacher is None
    with torch.no_grad():
        next(one.model.parameters()).zero_()
    assert next(two.model.parameters()).abs().sum() > 0


def test_planted_comes_with_a_student_and_a_teacher() -> None:
    loaded = load("planted")
    assert loaded.task == get_task("planted")
    assert loaded.teacher is not None
    for model, name in ((loaded.model, "planted_student"), (loaded.teacher, "planted_teacher")):
        assert Path(model.config._name_or_path) == paths.bases() / name
    assert loaded.teacher.config.vocab_size == loaded.model.config.vocab_size == len(loaded.tokenizer)
    teacher, collapsed = load("planted_teacher"), load("planted_collapsed")
    assert teacher.task == collapsed.task == loaded.task
    assert collapsed.teacher is not None


def test_base_is_small_and_complete() -> None:
    model, tokenizer = load_model("chain")
    assert model.dtype == torch.float32
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(160_000, rel=0.1)
    assert Path(model.config._name_or_path) == paths.bases() / "chain"
    ends = model.generation_config
    assert (ends.pad_token_id, ends.bos_token_id, ends.eos_token_id) == (0, 1, 2)
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert model.config.vocab_size == len(tokenizer)
    assert (paths.bases() / "chain" / "model.safetensors").stat().st_size < 1_000_000


def test_the_longest_prompt_and_answer_fit_the_base() -> None:
    task, model = load("chain").task, load("chain").model
    prompt = 2 + task.terms * (1 + len(str(task.high)))
    assert prompt + task.config["max_completion_length"] <= model.config.max_position_embeddings


def test_load_model_takes_folders_and_objects(tmp_path: Path) -> None:
    model, tokenizer = load_model("chain")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for place in (tmp_path, str(tmp_path)):
        again, _ = load_model(place)
        assert torch.equal(next(again.parameters()), next(model.parameters()))
    same, found = load_model(model)
    assert same is model
    assert found.get_vocab() == tokenizer.get_vocab()


def test_unknown_names_are_errors_that_list_the_bases() -> None:
    assert "chain" in base_names()
    with pytest.raises(ValueError, match="Did you mean 'tiny'"):
        load("tiyn")
    with pytest.raises(OSError, match=r"known by name: .*chain"):
        load_model("no/such-model")


def test_a_model_from_nowhere_is_an_error() -> None:
    model, _ = load_model("chain")
    model.config._name_or_path = ""
    with pytest.raises(ValueError, match="tokenizer is unknown"):
        load_model(model)


def test_weights_that_are_pickles_are_refused(tmp_path: Path) -> None:
    model, tokenizer = load_model("chain")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        load_model(tmp_path)

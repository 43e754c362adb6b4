"""`rlkit.trainer` and runs for methods that distil: who is the student, who teaches, settings, keys, accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlkit
from rlkit import paths
from rlkit.method import get_method
from rlkit.presets import get_preset
from rlkit.runs.keys import Run, run_parts
from rlkit.runs.training import train
from rlkit.settings import resolve
from tests import tiny

SMALL: dict[str, Any] = {"preset": "smoke", "task": "planted", "max_steps": 2}


def test_student_and_teacher_are_the_tasks_bases(tmp_path: Path) -> None:
    trainer = rlkit.trainer("tip", output_dir=str(tmp_path), retention=0.25, **SMALL)
    assert trainer.model.config._name_or_path.endswith("planted_student")
    assert trainer.teacher_model.config._name_or_path.endswith("planted_teacher")
    assert trainer.method.options == {"retention": 0.25}
    assert trainer.args.seed == trainer.args.data_seed == 0
    other = rlkit.trainer("opd", output_dir=str(tmp_path), model="planted_collapsed", **SMALL)
    assert other.model.config._name_or_path.endswith("planted_collapsed")


def test_train_seed_gives_every_seed_the_same_rows(tmp_path: Path) -> None:
    made = [rlkit.trainer("opd", output_dir=str(tmp_path), seed=seed, train_seed=0, **SMALL) for seed in (0, 1)]
    assert made[0].train_dataset["prompt"] == made[1].train_dataset["prompt"]


def test_a_step_draws_as_many_completions_as_grpo_one_a_prompt() -> None:
    grpo, opd = (resolve(get_method(name), get_preset("tiny"), {}, {}) for name in ("grpo", "opd"))
    assert opd["per_device_train_batch_size"] == grpo["per_device_train_batch_size"] == 64
    assert "num_generations" not in opd
    assert opd.origin["per_device_train_batch_size"] == "derived from prompts_per_step"


def test_beta_chooses_the_divergence_and_is_not_grpos() -> None:
    assert get_preset("tiny").settings["beta"] == 0 == resolve(get_method("grpo"), get_preset("tiny"), {}, {})["beta"]
    opd, called = (resolve(get_method("opd"), get_preset("tiny"), {"beta": 0.1}, o) for o in ({}, {"beta": 0.5}))
    assert (opd["beta"], opd.origin["beta"]) == (1.0, "method")
    assert (called["beta"], called.origin["beta"]) == (0.5, "call")


def test_options_are_those_of_the_family() -> None:
    with pytest.raises(ValueError, match="Unknown setting 'num_generations' for method 'opd'"):
        resolve(get_method("opd"), get_preset("tiny"), {}, {"num_generations": 4})
    with pytest.raises(ValueError, match="Unknown setting 'teacher_model_revision' for method 'grpo'"):
        resolve(get_method("grpo"), get_preset("tiny"), {}, {"teacher_model_revision": "x"})


def test_what_a_family_has_no_use_for_is_refused() -> None:
    with pytest.raises(ValueError, match="no use for reward="):
        rlkit.trainer("opd", reward="exact", **SMALL)
    with pytest.raises(ValueError, match="no use for teacher="):
        rlkit.trainer("grpo", teacher="chain", preset="smoke")
    with pytest.raises(ValueError, match="different tokenizers"):
        rlkit.trainer("opd", teacher="chain", **SMALL)


def test_a_run_is_named_by_its_teacher_and_the_files_of_its_family() -> None:
    runs = [Run("opd", "smoke", task="planted", teacher=t) for t in (None, "planted_teacher", "planted_student")]
    default, same, other = (run_parts(run) for run in runs)
    assert default == same
    assert {name for name in default if default[name] != other[name]} == {"teacher"}
    assert "teacher" not in run_parts(Run("grpo", "smoke"))
    assert run_parts(Run("opsdc", "smoke"))["method"] and "teacher" not in run_parts(Run("opd_no_teacher", "smoke"))


def test_sources_of_one_family_are_not_in_the_others_key() -> None:
    from rlkit.runs.keys import run_sources

    ours, theirs = run_sources(get_method("opd")), run_sources(get_method("grpo"))
    assert {"rlkit.trainers.distill", "rlkit.trainers.heads", "rlkit.divergences"} <= set(ours)
    assert not {"rlkit.trainers.distill", "rlkit.trainers.heads", "rlkit.divergences"} & set(theirs)


def test_a_run_distils_and_is_evaluated(tmp_path: Path) -> None:
    overrides = {"learning_rate": 1e-3, "max_steps": 4, "eval_every": 2, "eval_size": 16}
    result = train(Run("tip_q3", "smoke", task="planted", overrides=overrides), tmp_path)
    values = {name: [v for _, n, v in result.metrics if n == name] for name in ("accuracy", "divergence", "kept_share")}
    assert len(values["accuracy"]) == 3 and all(0 <= x <= 1 for x in values["accuracy"])
    assert len(values["divergence"]) == 4 and values["kept_share"] == [0.5] * 4
    assert result.totals["generated_tokens"] > result.totals["trained_tokens"] > 0
    assert not result.notes


def test_arms_take_a_teacher() -> None:
    run = rlkit.arm("opd", teacher="planted_student", task="planted").run("smoke", 0, {})
    assert run.teacher == "planted_student" and "teacher" not in run.overrides


def test_a_teacher_object_needs_no_name(tmp_path: Path) -> None:
    from rlkit.models import load_model

    teacher, _ = load_model("planted_teacher")
    trainer = rlkit.trainer("opd", teacher=teacher, output_dir=str(tmp_path), **SMALL)
    assert trainer.teacher_model is teacher
    assert (paths.bases() / "planted_teacher" / "config.json").exists()
    with pytest.raises(ValueError, match="the teacher's tokenizer"):
        rlkit.trainer("opd", teacher=tiny.tiny_model(vocab_size=40), output_dir=str(tmp_path), **SMALL)

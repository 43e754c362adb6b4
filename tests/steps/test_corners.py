"""Corners of slow motion: odd settings, odd hooks, odd files, odd functions."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from typing import Any

import pytest
import torch

import rlkit
from rlkit.exercises import check
from rlkit.method import Method, get_method
from rlkit.steps.step import Step, StepRow
from rlkit.trainers import rows
from tests import tiny


def test_compare_leaves_an_adapter_with_kl_alone(build: Any, tmp_path: Any) -> None:
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM

    tiny.tiny_model().save_pretrained(tmp_path / "base")
    tiny.tiny_tokenizer().save_pretrained(tmp_path / "base")
    torch.manual_seed(0)
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    trainer = build(model=base, beta=0.1, named={"peft_config": lora})
    step = trainer.preview()
    adapters = list(trainer.model.peft_config)
    with pytest.raises(ValueError, match="adapters and beta > 0"):
        rlkit.compare(step, ["grpo"])
    assert list(trainer.model.peft_config) == adapters
    assert trainer.preview().metrics["loss"] == pytest.approx(step.metrics["loss"], abs=1e-6)


def test_compare_keeps_the_options_of_a_method_that_is_given() -> None:
    step = rlkit.trainer("mc_grpo", preset="smoke", reward="graded", scale="mad").preview()
    found = rlkit.compare(step, [get_method("mc_grpo").with_options(scale="std")])
    assert found.steps["mc_grpo"].options["scale"] == "std"


def test_options_of_one_name_in_two_methods_are_not_mixed_up() -> None:
    step = rlkit.trainer("m2po", preset="smoke", reward="graded", rule="mask").preview()
    assert rlkit.compare(step, ["m2po", "minpro"]).steps["minpro"].options["rule"] == "capped"


def test_the_reward_of_a_comparison_is_that_of_the_step() -> None:
    step = rlkit.trainer("grpo", preset="smoke").preview()  # rlsc has a reward of its own
    expected = [row.reward for row in step.rows]
    assert rlkit.compare(step, ["rlsc", "grpo"]).rows["reward"].tolist() == expected
    assert rlkit.compare(step, ["grpo", "rlsc"]).rows["reward"].tolist() == expected


def without_some(trainer: Any, batch: Any) -> Any:
    """All of the first prompt's rollouts leave, and the first of each other prompt."""
    index = [i for i, group in enumerate(batch["group"].tolist()) if group and i % 4]
    return rows.take(batch, torch.tensor(index))


def test_rollouts_stay_in_their_place_where_a_method_drops_some(build: Any) -> None:
    step = build().preview()
    table = rlkit.compare(step, ["grpo", Method("drops", batch=without_some)]).rows
    assert table["completion"].tolist() == [row.completion for row in step.rows]
    assert table.loc[table["group"] == 0, "advantage[drops]"].isna().all()


def test_compare_refuses_a_policy_that_was_trained_again(build: Any) -> None:
    trainer = build(max_steps=1, learning_rate=0.05)
    trainer.train()
    step = trainer.preview()
    trainer.train()
    with pytest.raises(ValueError, match="trained since"):
        rlkit.compare(step, ["grpo"])


def test_a_step_over_two_generations_is_refused(build: Any) -> None:
    parts = {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "per_device_train_batch_size": 8}
    with pytest.raises(ValueError, match="several generation batches"):
        build(**parts).preview()
    with pytest.raises(ValueError, match="several generation batches"):
        build(named={"record_steps": [0]}, **parts)


def test_a_recorded_step_has_the_entropy_coefficient_of_its_step(build: Any) -> None:
    adaptive = {"use_adaptive_entropy": True, "entropy_target": 10.0, "entropy_coef_delta": 0.02}
    trainer = build(named={"record_steps": [1]}, entropy_coef_max=1.0, max_steps=2, **adaptive)
    trainer.train()
    assert trainer.steps[1].metrics["loss"] == pytest.approx(trainer.state.log_history[1]["loss"], abs=1e-5)


def test_a_preview_in_mid_accumulation_leaves_the_entropy_window_alone(build: Any) -> None:
    from transformers import TrainerCallback

    class Look(TrainerCallback):
        def on_substep_end(self, *given: Any, **named: Any) -> None:
            trainer.preview(row_gradients=False)

    found = []
    for callbacks in ([], [Look()]):
        options = {"use_adaptive_entropy": True, "entropy_target": 2.9, "entropy_coef_delta": 0.02}
        trainer = build(gradient_accumulation_steps=2, entropy_coef_max=1.0, named={"callbacks": callbacks}, **options)
        trainer.train()
        found.append(trainer._last_world_entropy)
    assert found[0] == found[1]


def test_a_preview_knows_how_long_the_run_will_be(build: Any) -> None:
    seen = []
    trainer = build(method=Method("m", advantage=lambda ctx: seen.append(ctx.max_steps)), max_steps=3)
    trainer.preview()
    assert seen == [3]


def test_a_method_that_chooses_prompts_shows_its_own() -> None:
    trainer = rlkit.trainer("vade", preset="smoke", reward="graded")
    with pytest.raises(ValueError, match="chooses prompts itself"):
        trainer.preview([3, 1, 2, 0])
    assert len(trainer.preview().rows) == 32


class Counts(dict):
    def state_dict(self) -> dict[str, int]:
        return dict(self)

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.clear()
        self.update(state)


class Slots:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def state_dict(self) -> dict[str, int]:
        return {"n": self.n}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.n = state["n"]


class CountsUp:
    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def __call__(self, ctx: Any) -> Any:
        if isinstance(self.memory, dict):
            self.memory["n"] = self.memory.get("n", 0) + 1
        else:
            self.memory.n += 1
        return ctx.rewards - ctx.rewards.mean(1, keepdim=True)


@pytest.mark.parametrize("kind", [Counts, Slots], ids=["a dict", "slots"])
def test_memory_of_any_kind_is_put_back(build: Any, kind: Any) -> None:
    memory = kind()
    trainer = build(method=Method("m", advantage=CountsUp(memory), state=(memory,)))
    before = trainer.method.state[0].state_dict()
    trainer.preview()
    assert trainer.method.state[0].state_dict() == before


def test_the_sampler_of_a_run_stays(build: Any) -> None:
    from transformers import TrainerCallback

    class Look(TrainerCallback):
        def on_step_end(self, *given: Any, **named: Any) -> None:
            before = trainer.sampler
            trainer.preview(row_gradients=False)
            same.append(trainer.sampler is before)

    same: list[bool] = []
    trainer = build(max_steps=1, named={"callbacks": [Look()]})
    trainer.train()
    assert all(same)


def test_numbers_of_a_truncated_completion_are_true_or_missing(build: Any) -> None:
    trainer = build(mask_truncated_completions=True)
    step = trainer.preview()
    row = next(row for row in step.rows if 2 not in row.completion_ids)
    true, _ = trainer.score([row.prompt_ids], [row.completion_ids])
    shown = row.values.get("logp")
    assert shown is None or shown == pytest.approx(true[0].tolist(), abs=1e-4)


def test_the_note_on_rows_without_a_push_gives_the_right_reason(build: Any) -> None:
    step = build(mask_truncated_completions=True).preview()
    silent = [row for row in step.rows if row.counted and not row.trained]
    assert any(row.advantage for row in silent)
    assert not any("their advantage is 0" in note for note in step.notes)


@pytest.mark.parametrize("steps", [[-1], [999], ["2"], "12"], ids=["negative", "behind the end", "text", "a text"])
def test_steps_that_cannot_be_recorded_are_refused(build: Any, steps: Any) -> None:
    with pytest.raises(ValueError, match="record_steps"):
        build(named={"record_steps": steps}, max_steps=2).train()


def saved() -> dict[str, Any]:
    row = StepRow(0, "1+1?", "2", [1], [5, 2], ["2", "</s>"], 1.0, values={"logp": [-0.1, -0.2]})
    return Step("grpo", "rlvr", 0, 0, {}, {"loss": 0.1}, [row]).to_dict()


def test_a_damaged_compressed_step_is_a_value_error(tmp_path: Any) -> None:
    content = bytearray(gzip.compress(json.dumps(saved()).encode()))
    content[30] ^= 0xFF
    (tmp_path / "step.json.gz").write_bytes(bytes(content))
    with pytest.raises(ValueError, match="damaged"):
        Step.load(tmp_path / "step.json.gz")


@pytest.mark.parametrize(
    "change",
    [{"tokens": ["2"]}, {"values": {"logp": [-0.1]}}, {"values": None}, {"reward": "x"}, {"group": "\x1b[31m"}],
    ids=["tokens", "values", "no values", "reward", "group"],
)  # fmt: skip
def test_a_step_that_cannot_be_shown_is_refused_when_it_is_loaded(tmp_path: Any, change: Any) -> None:
    whole = saved()
    whole["rows"][0] |= change
    (tmp_path / "step.json").write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(ValueError, match="damaged"):
        Step.load(tmp_path / "step.json")


def test_html_stays_under_its_limit_with_a_data_set_of_ten_columns() -> None:
    names = ("logp", "old_logp", "entropy", "advantage", "ratio", "loss", "coefficient", "weight")
    values = {name: [0.123456 * (t % 7 - 3) for t in range(5)] for name in names}
    columns = {f"column_{n}": "Natalia sold clips to 48 of her friends in <<April>>" for n in range(10)}
    row = StepRow(0, "Natalia " * 60, "2", [1], [1] * 5, [" token"] * 5, 1.0, values=values, extras=columns)
    step = Step("grpo", "rlvr", 0, 0, {}, {}, [dataclasses.replace(row, group=i // 16) for i in range(192)])
    assert len(step._repr_html_().encode()) < 300_000


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class NoPicture:
    def __repr__(self) -> str:
        raise RuntimeError


def raises(error: BaseException) -> Any:
    def function(rewards: Any) -> Any:
        raise error

    return function


def endless(rewards: Any) -> Any:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "function",
    [raises(NoText()), endless, lambda rewards: NoPicture(), lambda rewards: (rewards.to("meta"), rewards > 0)],
    ids=["error without a text", "a list in itself", "no repr", "meta tensor"],
)
def test_odd_results_are_failures_and_no_errors(function: Any) -> None:
    assert not check("median_baseline.advantage", function).passed


def test_an_error_message_is_made_safe_and_short() -> None:
    outcome = check("median_baseline.advantage", raises(ValueError("\x1b[31m" + "x" * 10**6)))
    assert "\x1b" not in repr(outcome) and len(repr(outcome)) < 10_000


def test_expected_and_got_are_shown_as_two_results() -> None:
    outcome = check("median_baseline.advantage", lambda rewards: (rewards, rewards > 0))
    assert "True" in outcome.details["expected"]  # keep is a tensor of True and False, not the second row of one tensor


def test_an_advantage_of_0_where_the_reward_is_nan_is_right_or_the_task_says_otherwise() -> None:
    def advantage(rewards: Any) -> Any:
        m = rewards.nanmedian(1, keepdim=True).values
        keep = torch.ones_like(rewards, dtype=torch.bool)
        keep[torch.arange(len(rewards)), (rewards == m).int().argmax(1)] = False
        return (rewards - m).nan_to_num(0.0), keep

    outcome = check("median_baseline.advantage", advantage)
    assert outcome.passed or "NaN" in outcome.details.get("hint", "")


def test_a_reward_function_that_gave_none_is_none(build: Any) -> None:
    step = build(reward=[lambda completions, **_: [None] * len(completions), tiny.length_reward]).preview()
    assert not any(isinstance(v, float) and math.isnan(v) for row in step.rows for v in row.rewards.values())

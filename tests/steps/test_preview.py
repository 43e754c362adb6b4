"""Slow motion leaves no trace, and what it shows is what the trainer does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import rlkit
from rlkit.method import Context, Method
from rlkit.steps.step import Step
from tests import tiny

TIMED = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")
MEMORY = ("mc_grpo", "vade", "replay_uniform", "exgrpo", "m2po+stale")
MORE = [pytest.param(name, marks=pytest.mark.slow) for name in ("grpo", "sgpo", "vcpo", "guide")]
LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo")


def metrics(trainer: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in entry.items() if k not in TIMED} for entry in trainer.state.log_history]


def trained(method: Any, look: bool, **settings: Any) -> Any:
    """A short run on the tiny base, with previews before and records on the way, or without."""
    record = {"record_steps": [0, 2, 4]} if look else {}
    trainer = rlkit.trainer(method, preset="smoke", max_steps=4, reward="graded", **record, **settings)
    if look:
        trainer.preview()
        trainer.preview(None if trainer.method.sampler else [3, 1, 2, 0])
    trainer.train()
    return trainer


@pytest.mark.parametrize("method", [*MEMORY, *MORE])
def test_looking_changes_no_metric_and_no_weight(method: str) -> None:
    """Twice as many rollouts are drawn, through hooks with memory, and nobody can tell."""
    seen, unseen = trained(method, True), trained(method, False)
    assert metrics(seen) == metrics(unseen)
    assert all(map(torch.equal, seen.model.parameters(), unseen.model.parameters()))
    assert sorted(seen.steps) == [0, 2, 4]


@pytest.mark.parametrize(
    "settings", [{"num_iterations": 2}, {"gradient_accumulation_steps": 2}], ids=["twice", "parts"]
)
def test_looking_changes_nothing_where_a_batch_is_split_or_used_again(settings: Any) -> None:
    assert metrics(trained("grpo", True, **settings)) == metrics(trained("grpo", False, **settings))


def test_a_preview_leaves_random_state_gradients_memory_and_mode_alone() -> None:
    trainer = rlkit.trainer("vade", preset="smoke", reward="graded")
    memory, state = trainer.method.state[0].state_dict(), torch.get_rng_state()
    trainer.model.eval()
    first = next(trainer.model.parameters())
    first.grad = gradient = torch.ones_like(first)
    before = {name: value for name, value in vars(trainer).items() if isinstance(value, int | float | str)}
    trainer.preview()
    assert torch.equal(torch.get_rng_state(), state)
    assert first.grad is gradient and bool((gradient == 1).all())
    assert not trainer.model.training
    assert repr(trainer.method.state[0].state_dict()) == repr(memory)
    assert {name: value for name, value in vars(trainer).items() if isinstance(value, int | float | str)} == before


@pytest.mark.parametrize("method", ["mc_grpo", "gspo", "m2po"])
def test_the_preview_before_training_is_the_first_step_of_training(method: str) -> None:
    """Same prompts, same rollouts, and loss and gradient norm that training logs."""
    trainer = rlkit.trainer(method, preset="smoke", max_steps=2, reward="graded", max_grad_norm=0.0, record_steps=[0])
    before = trainer.preview()
    trainer.train()
    logged, taken = trainer.state.log_history[0], trainer.steps[0]
    assert [row.completion_ids for row in before.rows] == [row.completion_ids for row in taken.rows]
    assert before.metrics["loss"] == pytest.approx(logged["loss"], abs=1e-6)
    assert taken.metrics["loss"] == pytest.approx(logged["loss"], abs=1e-6)
    assert taken.metrics["reward"] == pytest.approx(logged["reward"], abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("parts", [1, 2], ids=["whole", "accumulated"])
def test_the_tokens_parts_add_up_to_the_loss_and_the_norm_is_that_of_training(
    build: Any, loss: str, parts: int
) -> None:
    """Also on the second pass over a batch, where ratios differ from 1 and are clipped."""
    options = {"loss_type": loss, "num_iterations": 2, "gradient_accumulation_steps": parts, "max_steps": 4}
    trainer = build(named={"record_steps": [0, 1, 3]}, learning_rate=0.02, epsilon=0.05, **options)
    trainer.train()
    for number, step in trainer.steps.items():
        logged = trainer.state.log_history[number]
        parts_of_loss = sum(sum(row.values["loss"]) for row in step.rows)
        assert parts_of_loss == pytest.approx(step.metrics["loss"], abs=2e-5)
        assert step.metrics["loss"] == pytest.approx(logged["loss"], abs=2e-5)
        assert step.metrics["grad_norm"] == pytest.approx(logged["grad_norm"], rel=1e-4)
    ratios = [ratio for row in trainer.steps[1].rows for ratio in row.values["ratio"]]
    assert max(abs(ratio - 1) for ratio in ratios) > 0.05
    assert all(ratio == pytest.approx(1, abs=1e-5) for row in trainer.steps[0].rows for ratio in row.values["ratio"])


def one_rollout(ctx: Context) -> torch.Tensor:
    """Advantage 2 for the first rollout of the second prompt, 0 for all others."""
    assert ctx.rewards is not None
    A = torch.zeros_like(ctx.rewards)
    A[1, 0] = 2.0
    return A


@pytest.mark.parametrize("options", [{}, {"entropy_coef": 0.01}], ids=["plain", "with an entropy bonus"])
def test_a_row_has_the_gradient_norm_that_it_has_alone(build: Any, options: Any) -> None:
    step = build(method=Method("one", advantage=one_rollout), **options).preview()
    (row,) = [row for row in step.rows if row.advantage]
    assert (row.group, row.trained, row.advantage) == (1, True, 2.0)
    assert min(row.values["coefficient"]) > 0  # a good rollout becomes more likely, token by token
    if not options:
        assert row.grad_norm == pytest.approx(step.metrics["grad_norm"], rel=1e-4)
        assert all(other.grad_norm == 0 and not other.trained for other in step.rows if other is not row)
        assert "push nothing" in step.notes[0]
    else:  # the bonus moves rows without an advantage too
        assert all(other.grad_norm > 0 for other in step.rows)


def test_a_token_of_weight_0_gets_no_push() -> None:
    step = rlkit.trainer("top_entropy", preset="smoke", reward="graded").preview()
    table = step.to_frame()
    assert set(table["weight"]) == {0.0, 1.0}
    pushed = table[table["coefficient"] != 0]
    assert len(pushed) and (pushed["weight"] == 1).all()
    assert pushed["entropy"].min() > 0


def test_a_pooled_method_has_weights_too(build: Any) -> None:
    def above_mean(ctx: Context) -> torch.Tensor:
        assert ctx.entropies is not None and ctx.mask is not None
        mean = (ctx.entropies * ctx.mask).sum() / ctx.mask.sum()
        return (ctx.entropies > mean).float()

    trainer = build(method=Method("above", token_weight=above_mean, pooled=True), gradient_accumulation_steps=2)
    table = trainer.preview().to_frame()
    mean = table["entropy"].mean()
    assert ((table["entropy"] > mean) == (table["weight"] == 1)).all()
    assert (table.loc[table["weight"] == 0, "coefficient"] == 0).all()


def test_replayed_rows_show_their_age_and_their_ratio() -> None:
    trainer = rlkit.trainer(
        "replay_uniform", preset="smoke", max_steps=3, reward="graded", learning_rate=1e-3, record_steps=[2]
    )
    trainer.train()
    old = [row for row in trainer.steps[2].rows if row.age]
    assert {row.age for row in old} <= {1, 2} and old
    assert any(abs(ratio - 1) > 1e-3 for row in old for ratio in row.values["ratio"])
    assert all(row.extras["gold"] for row in old)
    assert any("replayed" in note for note in trainer.steps[2].notes)


def test_rows_taken_out_are_there_and_say_so() -> None:
    step = rlkit.trainer("mc_grpo", preset="smoke").preview()
    out = [row for row in step.rows if not row.counted]
    assert len(out) == len({row.group for row in step.rows})  # one pivot a prompt
    assert all(row.advantage == 0 and not row.trained for row in out)


def test_prompts_are_rows_of_the_training_data() -> None:
    trainer = rlkit.trainer("grpo", preset="smoke")
    row = dict(trainer.train_dataset[5])
    step = trainer.preview([5, row])
    assert [(r.prompt, r.extras["id"]) for r in step.rows] == [(row["prompt"], row["id"])] * 16
    assert {r.group for r in step.rows} == {0, 1}
    for wrong, words in (([], "more than none"), ([10**6], "rows of the training data"), (["1+1?"], "columns prompt")):
        with pytest.raises(ValueError, match=words):
            trainer.preview(wrong)


def test_rewards_of_several_functions_are_shown_apart(build: Any) -> None:
    step = build(reward=[tiny.length_reward, tiny.half_reward]).preview()
    for row in step.rows:
        assert set(row.rewards) == {"length_reward", "half_reward"}
        assert sum(value for value in row.rewards.values() if value) == pytest.approx(row.reward, abs=1e-6)


def test_a_step_comes_back_from_a_file(tmp_path: Any) -> None:
    step = rlkit.trainer("mc_grpo", preset="smoke").preview()
    for name in ("step.json", "step.json.gz"):
        step.save(tmp_path / name)
        back = Step.load(tmp_path / name)
        assert back.to_dict() == step.to_dict()
        assert back.rows[0].values["entropy"] == pytest.approx(step.rows[0].values["entropy"], rel=1e-5)
    (tmp_path / "step.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="damaged"):
        Step.load(tmp_path / "step.json")


def test_a_part_of_a_step_keeps_the_numbers_of_the_whole() -> None:
    step = rlkit.trainer("grpo", preset="smoke").preview()
    part = step.only([1], rollouts=3)
    assert [row.group for row in part.rows] == [1, 1, 1] and part.metrics == step.metrics
    assert "3 of 32 rollouts are shown" in part.notes[-1]
    with pytest.raises(ValueError, match="no group 9"):
        step.only([9])
    with pytest.raises(ValueError, match="Did you mean 'entropy'"):
        step.show("entropie")


def test_a_run_of_the_grid_keeps_steps_without_another_metric(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path))
    plain, kept = (
        rlkit.run(["mc_grpo"], preset="smoke", progress=False, **more) for more in ({}, {"record_steps": [1]})
    )
    assert kept.frame.equals(plain.frame)
    step = kept.steps("mc_grpo")[1]
    assert step.step == 1 and len(step.rows) == 36
    with pytest.raises(ValueError, match="record_steps"):
        plain.steps("mc_grpo")


def test_texts_that_are_no_unicode_are_kept(tmp_path: Any) -> None:
    """Byte-level tokenizers give lone surrogates and control characters."""
    step = rlkit.trainer("grpo", preset="smoke").preview().only(1, rollouts=1)
    odd = dataclasses.replace(step.rows[0], completion="\ud800\x00", tokens=["\ud800"] * len(step.rows[0].tokens))
    step = dataclasses.replace(step, rows=[odd])
    step.save(tmp_path / "step.json")
    assert Step.load(tmp_path / "step.json").rows[0].completion == "\ud800\x00"
    assert step.to_frame()["token"][0] == "\ud800" and step.rows_frame()["completion"][0] == "\ud800\x00"


def test_old_rows_that_joined_their_group_are_shown_in_it() -> None:
    options = {"at_least": 1, "train_size": 8, "max_steps": 5, "record_steps": [4]}
    trainer = rlkit.trainer("repo", preset="smoke", reward="graded", learning_rate=1e-3, **options)
    trainer.train()
    step = trainer.steps[4]
    assert all(sum(row.group == n for row in step.rows) == 8 for n in range(4))
    old = [row for row in step.rows if row.age]
    assert {sum(row.group == n for row in old) for n in range(4)} == {4}
    fresh = [ratio for row in step.rows if not row.age for ratio in row.values["ratio"]]
    assert set(fresh) == {1.0}
    assert any(abs(ratio - 1) > 1e-3 for row in old for ratio in row.values["ratio"])

"""A distillation step in slow motion is the step that is taken, and looking at it changes nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import rlkit
from rlkit.method import Method
from rlkit.steps.step import Step
from tests.tiny import Build, history

NAMES = ["opd", "opd_forward", "opd_sampled", "opd_topk", "tip", "tip_q3", "tip_random"]
LOOKED = ("loss", "grad_norm", "entropy", "num_tokens", "generated_tokens", "trained_tokens", "kept_share")


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


@pytest.mark.parametrize("parts", [1, 2], ids=["whole", "halves"])
@pytest.mark.parametrize("name", NAMES)
def test_a_preview_is_the_first_step_of_training(distil: Build, name: str, parts: int) -> None:
    size = {"per_device_train_batch_size": 8 // parts, "gradient_accumulation_steps": parts}
    trainer = distil(method=name, max_steps=1, **size)
    step = trainer.preview()
    trainer.train()
    loss, norm, share = history(trainer, "loss", "grad_norm", "kept_share")[0]
    assert step.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert step.metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert step.metrics["kept_share"] == pytest.approx(share, rel=1e-6)
    assert len(step.rows) == 8 and [row.group for row in step.rows] == list(range(8))


@pytest.mark.parametrize("name", ["opd", "tip", "tip_random"])
def test_looking_changes_no_metric_and_no_weight(distil: Build, name: str) -> None:
    plain = distil(method=name)
    plain.train()
    watched = distil(method=name, named={"record_steps": [0, 2, 3]})
    watched.preview()
    watched.train()
    watched.preview()
    assert history(watched, *LOOKED) == history(plain, *LOOKED)
    assert torch.equal(weights(watched), weights(plain))
    assert sorted(watched.steps) == [0, 2, 3]
    for number in (0, 2):
        step = watched.steps[number]
        assert step.step == number
        assert step.metrics["loss"] == pytest.approx(history(plain, "loss")[number][0], rel=1e-5)


def test_the_values_of_a_token_add_up(distil: Build) -> None:
    step = distil(method="tip", max_steps=1).preview()
    assert step.trainer == "distill" and step.quantities[0]
    kept = sum(sum(row.values["weight"]) for row in step.rows)
    assert sum(sum(row.values["loss"]) for row in step.rows) == pytest.approx(step.metrics["loss"], rel=1e-5)
    for row in step.rows:
        names = ("weight", "divergence", "loss", "coefficient", "logp", "teacher_logp", "entropy")
        assert all(len(row.values[name]) == len(row.tokens) for name in names)
        assert row.reward is None and row.extras["gold"] is not None
        for w, d, part, push in zip(*(row.values[name] for name in names[:4]), strict=True):
            assert part == pytest.approx(w * d / kept, rel=1e-4, abs=1e-8)  # beta is 1: the loss is the divergence
            assert w or not push
        assert row.trained == (row.grad_norm is not None and row.grad_norm > 0)
    assert f"{int(kept)} of " in step.notes[0]


def test_the_push_is_the_derivative_by_the_drawn_logit(distil: Build) -> None:
    """For reverse KL that is -w/W p (log p - log q - KL) at the drawn token."""
    step = distil(method="opd", max_steps=1).preview()
    tokens = sum(len(row.tokens) for row in step.rows)
    for row in step.rows:
        for logp, logq, d, push in zip(
            *(row.values[name] for name in ("logp", "teacher_logp", "divergence", "coefficient")), strict=True
        ):
            assert push == pytest.approx(-math.exp(logp) * (logp - logq - d) / tokens, abs=1e-7)


def test_row_gradients_are_those_of_the_rows(distil: Build) -> None:
    """With one row in the batch its gradient is the gradient of the step."""
    trainer = distil(method="tip", max_steps=1)
    step = trainer.preview([3])
    assert step.rows[0].grad_norm == pytest.approx(step.metrics["grad_norm"], rel=1e-5)
    assert trainer.preview([3], row_gradients=False).rows[0].grad_norm is None


def test_a_teacher_prompt_is_seen_in_slow_motion(distil: Build) -> None:
    method = rlkit.catalog()["opsd"].with_options(template="#={prompt}")
    step = distil(method=method, teacher=None, max_steps=1).preview()
    row = step.rows[0]
    assert row.extras["teacher_prompt"] == "#=" + row.prompt
    assert any(d > 1e-5 for d in row.values["divergence"])


def test_without_a_teacher_there_is_no_divergence(distil: Build) -> None:
    step = distil(method="opd_no_teacher", teacher=None, max_steps=1).preview()
    assert "divergence" not in step.quantities and "coefficient" in step.quantities


def test_selectors_are_compared_on_the_same_rollouts(distil: Build) -> None:
    trainer = distil(method="tip", max_steps=1)
    step = trainer.preview()
    found = rlkit.compare(step, ["tip", "tip_q3", "opd"])
    assert [found.steps[name].method for name in found.methods] == ["tip", "tip_q3", "opd"]
    same = [[row.completion_ids for row in one.rows] for one in (step, *found.steps.values())]
    assert all(one == same[0] for one in same)
    assert found.steps["tip"].metrics["grad_norm"] == pytest.approx(step.metrics["grad_norm"], rel=1e-6)
    assert found.cosine.loc["tip", "tip"] == pytest.approx(1)
    tokens = [len(row.tokens) for row in step.rows]
    assert found.rows["tokens[tip]"].tolist() == [max(1, n // 2) for n in tokens]
    trainer.train()
    with pytest.raises(ValueError, match="has trained since"):
        rlkit.compare(step, ["opd"])


def test_a_step_is_saved_and_read(distil: Build, tmp_path: Path) -> None:
    step = distil(method="tip", max_steps=1).preview()
    step.save(tmp_path / "step.json.gz")
    assert Step.load(tmp_path / "step.json.gz").to_dict() == step.to_dict()
    assert "tip" in repr(step) and "<" in step._repr_html_()


def test_prompts_that_do_not_divide_are_refused(distil: Build) -> None:
    trainer = distil(method="opd", per_device_train_batch_size=4, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="do not divide into 2 micro-batches"):
        trainer.preview([1, 2, 3])
    with pytest.raises(ValueError, match="numbers from 0 to 15"):
        trainer.preview([99, 1])


def test_memory_of_a_method_is_put_back(distil: Build) -> None:
    class Counter:
        def __init__(self) -> None:
            self.calls = 0

        def weight(self, ctx: Any) -> torch.Tensor:
            self.calls += 1
            return torch.ones_like(ctx.entropies)

        def state_dict(self) -> dict[str, Any]:
            return {"calls": self.calls}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.calls = state["calls"]

    counter = Counter()
    method = Method("counting", trainer="distill", token_weight=counter.weight, state=(counter,))
    trainer = distil(method=method, max_steps=2)
    trainer.preview()
    assert trainer.method.state[0].calls == 0 and counter.calls == 0
    trainer.train()
    assert trainer.method.state[0].calls == 2 and counter.calls == 0

"""Several methods on the same rollouts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import rlkit
from rlkit.methods.mc_grpo import median_pivot
from rlkit.steps.compare import Comparison


@pytest.fixture(scope="module")
def trainer() -> Any:
    return rlkit.trainer("dr_grpo", preset="smoke", reward="graded")


def test_methods_see_the_same_rollouts_and_nothing_moves(trainer: Any) -> None:
    step, state = trainer.preview(), torch.get_rng_state()
    before = [p.clone() for p in trainer.model.parameters()]
    found = rlkit.compare(step, ["dr_grpo", "grpo", "mc_grpo"])
    assert found.methods == ["dr_grpo", "grpo", "mc_grpo"]
    assert found.rows["completion"].tolist() == [row.completion for row in step.rows]
    assert found.rows["advantage[dr_grpo]"].tolist() == pytest.approx([row.advantage for row in step.rows])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, before, trainer.model.parameters()))
    assert found.steps["dr_grpo"].metrics["grad_norm"] == pytest.approx(step.metrics["grad_norm"], rel=1e-5)


def test_a_method_that_wants_an_odd_group_leaves_the_last_rollout_out(trainer: Any) -> None:
    found = rlkit.compare(trainer.preview(), ["mc_grpo"])
    assert found.notes == ["mc_grpo uses the first 7 of each 8 rollouts."]
    rewards = torch.tensor(found.rows["reward"]).view(-1, 8)[:, :7]
    A, keep = median_pivot(rewards)
    shown = found.rows[found.rows["rollout"] < 7]
    assert shown["advantage[mc_grpo]"].tolist() == pytest.approx(A.flatten().tolist(), abs=1e-6)
    assert shown["trained[mc_grpo]"].tolist() == (keep & (A != 0)).flatten().tolist()
    assert found.rows.loc[found.rows["rollout"] == 7, "advantage[mc_grpo]"].isna().all()


def test_cosines_are_those_of_the_gradients(trainer: Any) -> None:
    upside_down = rlkit.Method(
        "upside_down",
        parent="dr_grpo",
        config={"loss_type": "dr_grpo", "scale_rewards": "none"},
        advantage=lambda ctx: ctx.rewards.mean(1, keepdim=True) - ctx.rewards,
    )
    cosine = rlkit.compare(trainer.preview(), ["dr_grpo", upside_down, "top_entropy"]).cosine
    assert cosine.loc["dr_grpo", "dr_grpo"] == pytest.approx(1, abs=1e-5)
    assert cosine.loc["dr_grpo", "upside_down"] == pytest.approx(-1, abs=1e-5)
    assert 0 < cosine.loc["dr_grpo", "top_entropy"] < 1


def test_a_trainer_built_directly_can_be_compared_too(build: Any) -> None:
    found = rlkit.compare(build(num_generations=4).preview(), ["grpo", "rloo"])
    assert found.rows["trained[rloo]"].any()
    assert found.cosine.loc["grpo", "rloo"] > 0.5


def test_what_cannot_be_compared_says_why(trainer: Any, tmp_path: Any) -> None:
    step = trainer.preview()
    with pytest.raises(ValueError, match="changes which rollouts there are"):
        rlkit.compare(step, ["grpo", "vade"])
    with pytest.raises(ValueError, match="different names"):
        rlkit.compare(step, ["grpo", "grpo"])
    step.save(tmp_path / "step.json")
    with pytest.raises(ValueError, match="recorded, saved or loaded"):
        rlkit.compare(rlkit.Step.load(tmp_path / "step.json"), ["grpo"])
    other = rlkit.trainer("grpo", preset="smoke", max_steps=1)
    step = other.preview()
    other.train()
    with pytest.raises(ValueError, match="has trained since"):
        rlkit.compare(step, ["grpo"])


def test_a_comparison_comes_back_from_json(trainer: Any) -> None:
    found = rlkit.compare(trainer.preview(), ["dr_grpo", "mc_grpo"])
    back = Comparison.from_dict(found.to_dict())
    assert back.cosine.round(6).equals(found.cosine.round(6)) and back.notes == found.notes
    assert back.rows.equals(found.rows)

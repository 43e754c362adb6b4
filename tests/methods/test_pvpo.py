"""PVPO: r - V, V from the starting policy, collected once and charged."""

import pytest
import torch

from rlkit.method import Context
from rlkit.methods import pvpo
from tests.tiny import half_reward, history, tiny_data

nan = float("nan")


def test_advantage_of_hand_computed_groups():
    reference = torch.tensor([1.0, 0, 0, 0]).mean().view(1, 1)  # V = .25
    groups = {(1.0, 0.0): [0.75, -0.25], (0.0, 0.0): [-0.25, -0.25], (1.0, 1.0): [0.75, 0.75]}
    for rewards, expected in groups.items():
        assert pvpo.static_advantage(torch.tensor([rewards]), reference).tolist() == [expected]


def test_groups_without_spread_have_an_advantage_unless_the_reward_is_v():
    rewards = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    assert (pvpo.static_advantage(rewards, torch.tensor([[0.5], [0.5]])) != 0).all()
    assert (pvpo.static_advantage(rewards, torch.tensor([[0.0], [1.0]])) == 0).all()


def test_unscorable_rollouts_stay_nan_and_a_prompt_without_v_falls_back_to_the_group():
    A = pvpo.static_advantage(torch.tensor([[1.0, nan], [1.0, 0.0]]), torch.tensor([[0.25], [nan]]))
    assert A[0, 0] == 0.75
    assert A[0, 1].isnan()
    assert A[1].tolist() == [0.5, -0.5]


def test_the_hook_puts_the_column_on_ragged_groups():
    rewards = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, nan]])
    valid = ~rewards.isnan()
    column = {pvpo.COLUMN: [0.25, 0.25, 0.25, 0.5, 0.5]}
    A = pvpo._advantage(Context(rewards=rewards, valid=valid, columns=column, options=pvpo.PVPO.options))
    assert A[0].tolist() == [0.75, -0.25, 0.75]
    assert A[1, :2].tolist() == [0.5, -0.5]


def test_an_unknown_baseline_is_refused():
    with pytest.raises(ValueError, match="baseline is 'static' or 'group', not 'mean'"):
        pvpo._advantage(Context(rewards=torch.ones(1, 2), valid=torch.ones(1, 2) > 0, options={"baseline": "mean"}))


def test_the_reference_is_collected_once_charged_and_used(build):
    trainer = build(method="pvpo", data=tiny_data(8), reward=half_reward, max_steps=2)
    before = trainer.generated_tokens
    assert before > 0
    V = torch.tensor(trainer.train_dataset[pvpo.COLUMN])
    assert V.shape == (8,)
    assert set((V * 4).tolist()) <= {0, 1, 2, 3, 4}  # means of M = num_generations = 4 rewards
    assert V[::2].eq(0).all()
    assert V[1::2].gt(0).any()
    trainer.train()
    shown = list(trainer._logs["advantages"])
    assert any(a < 0 for a in shown)
    assert history(trainer, "generated_tokens")[0][0] > before


def test_prompts_that_the_reference_solves_can_be_dropped(build):
    def easy(completions, id, **columns):
        return [float(i % 2) for i in id]

    trainer = build(method=pvpo.PVPO.with_options(drop_at=1.0, samples=2), reward=easy)
    assert set(trainer.train_dataset["id"]) == set(range(0, 16, 2))


def test_it_reduces_to_dr_grpo(build):
    seen = []
    for method, config in (
        ("dr_grpo", {}),
        (pvpo.PVPO.with_options(baseline="group"), {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    ):
        trainer = build(method=method, named={"apply_config": not config}, **config)
        trainer.train()
        seen.append(history(trainer, "loss", "grad_norm", "reward", "generated_tokens"))
    assert seen[0] == seen[1]

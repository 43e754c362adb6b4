"""The seam `sampler`: which prompts, and how many rollouts of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlkit.method import Context, Method
from rlkit.methods.grpo import standardized
from tests.tiny import Build, half_reward, history, length_reward

NAMES = ("loss", "grad_norm", "reward", "num_tokens", "frac_reward_zero_std", "generated_tokens")


def _plan(sizes: Any) -> Any:
    """The first prompts of the data set with these sizes, and a record of what an advantage hook sees."""
    seen: list[Context] = []

    def sampler(ctx: Context, dataset: Any, rows: Any) -> Any:
        return [(dataset[i], size) for i, size in enumerate(sizes)]

    def advantage(ctx: Context) -> None:
        seen.append(ctx)

    return Method("sized", sampler=sampler, advantage=advantage), seen


def test_trls_own_plan_is_trl(build: Build) -> None:
    def sampler(ctx: Context, dataset: Any, rows: Any) -> Any:
        assert len(rows) == 8 and ctx.group_size == 4 and len(dataset) == 16
        return [(row, ctx.group_size) for row in rows]

    runs = [build(reward=half_reward, method=m) for m in ("grpo", Method("same", sampler=sampler))]
    for trainer in runs:
        trainer.train()
    assert history(runs[0], *NAMES) == history(runs[1], *NAMES)


def test_groups_of_different_sizes_reach_the_hooks_and_the_loss(build: Build) -> None:
    sizes = (1, 2, 3, 4, 10, 12)
    method, seen = _plan(sizes)
    trained = []
    trainer = build(method=method, max_steps=1, named={"skip_zero_advantage": False})
    inner = trainer._choose
    trainer._choose = lambda inputs: trained.append(inputs) or inner(inputs)
    trainer.train()
    (ctx,) = seen
    assert ctx.rewards.shape == ctx.valid.shape == ctx.lengths.shape == (6, 12)
    assert ctx.valid.sum(1).tolist() == list(sizes) and ctx.rewards[~ctx.valid].isnan().all()
    assert ctx.columns["id"] == list(ctx.groups) == [i for i, size in enumerate(sizes) for _ in range(size)]
    rewards = torch.tensor(length_reward(ctx.texts))
    assert torch.allclose(ctx.rewards[ctx.valid], rewards)
    expected = standardized(ctx.rewards).nan_to_num(0)[ctx.valid]
    assert sorted(trained[0]["advantages"].tolist()) == pytest.approx(sorted(expected.tolist()), abs=1e-6)
    assert list(trainer._logs["advantages"]) == pytest.approx(expected.tolist(), abs=1e-6)


SCALES: list[dict[str, Any]] = [{"scale_rewards": "group"}, {"scale_rewards": "batch"}, {"scale_rewards": "none"}]
SCALES += [{"multi_objective_aggregation": "normalize_then_sum", "reward": [half_reward, length_reward]}]


@pytest.mark.parametrize("options", SCALES, ids=lambda options: str(next(iter(options.values()))))
def test_groups_of_another_size_are_what_trl_gives_at_that_size(build: Build, options: dict[str, Any]) -> None:
    """8 prompts x 4 by a sampler in a run with groups of 8, against TRL with groups of 4: the same rollouts."""
    prompts: list[Any] = []

    def note(ctx: Context) -> None:
        prompts.append(dict(zip(ctx.columns["id"], ctx.columns["prompt"], strict=True)))

    def sampler(ctx: Context, dataset: Any, rows: Any) -> Any:
        return [(dataset[i], 4) for i in prompts[ctx.step]]

    options = {"reward": half_reward, "max_steps": 2, **options}
    fours = build(method=Method("note", advantage=note), **options)
    fours.train()
    eights = build(method=Method("fours", sampler=sampler), num_generations=8, **options)
    eights.train()
    found, expected = history(eights, *NAMES), history(fours, *NAMES)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    assert expected[0][1] > 0


def test_zero_variance_is_counted_in_the_real_groups(build: Build) -> None:
    """TRL would cut 32 rows into eights: here all rows of a group are equal, groups differ."""

    def by_group(completions: Any, id: Any, **columns: Any) -> list[float]:
        return [float(i) for i in id]

    method, _ = _plan((2,) * 16)
    trainer = build(method=method, reward=by_group, num_generations=8, max_steps=1)
    trainer.train()
    assert history(trainer, "frac_reward_zero_std", "grad_norm", "reward") == [(1, 0, 7.5)]


def test_rows_may_be_edited_and_chosen_by_what_was_learnt_a_step_ago(build: Build) -> None:
    """The data loader reads ahead; the sampler acts when generation starts, with memory of the last step."""
    learnt: list[int] = []
    asked: list[Any] = []

    def sampler(ctx: Context, dataset: Any, rows: Any) -> Any:
        assert len(learnt) == ctx.step
        return [({**dataset[i], "prompt": f"{ctx.step}-{i}?"}, 4) for i in range(8)]

    def advantage(ctx: Context) -> None:
        learnt.append(ctx.step)
        asked.append(ctx.columns["prompt"][::4])

    build(method=Method("late", sampler=sampler, advantage=advantage)).train()
    assert learnt == [0, 1, 2]
    assert asked == [[f"{step}-{i}?" for i in range(8)] for step in range(3)]


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (
            lambda d, r: [(row, 4) for row in r[:7]],
            r"with 32 rollouts in all \(8 prompts x 4, .*\), got 28 for 7 prompts",
        ),
        (lambda d, r: [(row, 0) for row in r], r"whole numbers g of at least 1, got 0"),
        (lambda d, r: [(row, 4.0) for row in r], r"whole numbers g of at least 1, got 4.0"),
        (lambda d, r: list(r), r"expected \[\(row, g\), ...\], got list"),
        (lambda d, r: [({"id": 1}, 4)] * 8, r"rows that have a column 'prompt', got \{'id': 1\}"),
        (lambda d, r: None, r"got NoneType"),
    ],
)
def test_a_plan_of_the_wrong_kind_is_an_error(build: Build, plan: Any, told: str) -> None:
    method = Method("mine", sampler=lambda ctx, dataset, rows: plan(dataset, rows))
    with pytest.raises(ValueError, match=rf"Method 'mine', seam 'sampler': .*{told}"):
        build(method=method, max_steps=1).train()


def test_a_prompt_that_a_sampler_makes_too_long_is_an_error(build: Build) -> None:
    method = Method("long", sampler=lambda ctx, d, rows: [({**r, "prompt": "1" * 80}, 4) for r in rows])
    with pytest.raises(ValueError, match="A prompt of 81 tokens does not fit"):
        build(method=method, max_steps=1).train()


def test_vllm_would_draw_a_fixed_number_a_prompt(build: Build, tmp_path: Path) -> None:
    """`generate_rows` asks for one rollout a prompt, whatever `num_generations` says."""
    trainer = build()
    asked = []
    inner = trainer._generate_single_turn
    trainer._generate_single_turn = lambda *given: asked.append(given[3]) or inner(*given)
    assert len(trainer.generate_rows([trainer.train_dataset[i] for i in (0, 0, 1)])) == 3 and asked == [1]

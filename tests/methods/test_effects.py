"""Thirty steps on the tiny base: each method moves what its formula says that it moves."""

from __future__ import annotations

from typing import Any

import pytest

import rlkit
from rlkit.method import Method
from rlkit.methods import hints, luffy, olr
from rlkit.tasks.base import get_task

pytestmark = pytest.mark.slow

HARD = "chain(terms=5)"
"""Most groups of the base have no right rollout here."""
OFF_POLICY = {"steps_per_generation": 4, "prompts_per_step": 2, "max_steps": 32, "learning_rate": 3e-4}
"""Four updates a generation, large enough to move the ratio."""


@pytest.fixture
def run(tmp_path, one_thread):
    """Build a trainer at the size of `tiny` and train it: `run(method, **settings)`."""

    def train(method: str | Method, *, trained: bool = True, **settings: Any) -> Any:
        from transformers.trainer_callback import PrinterCallback

        sizes = {"max_steps": 30, "train_size": 64, "output_dir": str(tmp_path)}
        made = rlkit.trainer(method, preset="tiny", **{**sizes, **settings})
        made.remove_callback(PrinterCallback)
        if trained:
            made.train()
        return made

    return train


def logged(trainer: Any, name: str) -> list[float]:
    return [line[name] for line in trainer.state.log_history if line.get(name) is not None]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_pvpo_trains_groups_without_spread(run):
    pairs = {"num_generations": 2, "prompts_per_step": 16}
    left_out = {name: mean(logged(run(name, **pairs), "rows_left_out")) for name in ("dr_grpo", "pvpo")}
    assert left_out["pvpo"] < left_out["dr_grpo"] - 0.03


def test_d3s_trains_a_quarter_of_the_rows_at_first_and_all_at_last(run):
    trainer = run("d3s")
    left_out = logged(trainer, "rows_left_out")
    assert left_out[0] >= 0.7
    assert left_out[-1] == 0
    assert mean(left_out[:10]) > mean(left_out[10:20]) > mean(left_out[20:])
    assert trainer.trained_tokens < 0.75 * trainer.generated_tokens


def test_vade_draws_fewer_groups_without_spread(run):
    def share(name: str, **options: Any) -> float:
        runs = [run(name, task=HARD, train_size=32, seed=seed, **options) for seed in range(2)]
        return mean([mean(logged(trainer, "frac_reward_zero_std")[15:]) for trainer in runs])

    uniform, drawn, greedy = share("grpo"), share("vade"), share("vade", strategy="expected")
    assert drawn < uniform - 0.03
    assert greedy < uniform - 0.1


def test_sgpo_goes_from_easy_prompts_in_small_groups_to_hard_ones_in_large_groups(run):
    trainer = run("sgpo")
    groups = logged(trainer, "sgpo/group")
    assert groups == sorted(groups)
    assert {groups[0], groups[-1]} == {2, 8}
    rewards = logged(trainer, "reward")
    assert mean(rewards[:10]) > mean(rewards[20:])


def test_hints_give_more_groups_with_spread(run):
    spread = {name: 1 - mean(logged(run(name), "frac_reward_zero_std")) for name in ("grpo", "guide", "sage")}
    assert spread["guide"] > spread["grpo"] + 0.1
    assert spread["sage"] > spread["grpo"] + 0.1


def test_luffy_makes_the_expert_more_likely(run):
    def rise(name: str) -> float:
        trainer = run(name, trained=False, task=HARD)
        rows = [trainer.train_dataset[i] for i in range(32)]
        prompts = trainer.tokenize([row["prompt"] for row in rows])
        texts = [hints.worked_solution(row) for row in rows]
        experts = [luffy.expert_ids(text, trainer.processing_class, 99) for text in texts]
        tokens = sum(map(len, experts))
        before = float(trainer.score(prompts, experts)[0].sum()) / tokens
        trainer.train()
        return float(trainer.score(prompts, experts)[0].sum()) / tokens - before

    assert rise("luffy") > rise("dr_grpo") + 0.05


def test_pope_finds_starts_from_which_hard_prompts_are_solved(run):
    trainer = run("pope", train_size=128)
    rates = {}
    for guided in (False, True):
        rows = [row for row in trainer.train_dataset if (row["guided"] > 0) is guided]
        rates[guided] = mean([got["reward"] for got in trainer.collect([row for row in rows for _ in range(8)])])
    assert rates[True] > rates[False]


def test_olr_replaces_labels_that_nobody_produces_by_right_ones(run):
    """Inactive noise: every second label is off by 100. GRPO gets no reward on those prompts at all."""
    from datasets import Dataset, DatasetDict

    replaced = right = 0
    for seed in range(2):
        rows = [dict(row) for row in get_task("chain").dataset("train", 16, seed=seed)]
        given = {row["id"]: str(int(row["gold"]) + 100 * (i % 2)) for i, row in enumerate(rows)}
        true = {row["id"]: row["gold"] for row in rows}
        noisy = Dataset.from_list([{**row, "gold": given[row["id"]]} for row in rows])
        splits = DatasetDict({name: noisy for name in ("train", "validation", "test")})
        size = {"train_size": 16, "num_generations": 16, "max_completion_length": 48, "max_steps": 40}
        trainer = run("olr", task=splits, seed=seed, start=2, learning_rate=3e-4, **size)
        for key, visits in trainer.method.state[0].history.items():
            labels = [olr.refined_label(given[key], visits[:k], 2, 0.05) for k in range(1, len(visits) + 1)]
            replaced += sum(label != given[key] for label in labels)
            right += sum(label == true[key] != given[key] for label in labels)
    assert replaced >= 10
    assert right / replaced > 0.7


def test_rlsc_becomes_sure(run):
    trainer = run("rlsc", learning_rate=3e-4, max_steps=20)
    confidence = logged(trainer, "reward")
    assert mean(confidence[-5:]) > 1.5 * mean(confidence[:5])
    entropy = logged(trainer, "entropy/trained_rows") or logged(trainer, "entropy")
    assert mean(entropy[-5:]) < 0.7 * mean(entropy[:5])


def test_m2po_keeps_the_second_moment_under_its_threshold(run):
    trainer = run("m2po", **OFF_POLICY)
    assert max(logged(trainer, "m2po/second_moment")) > 0.04
    assert max(logged(trainer, "m2po/second_moment_kept")) <= 0.04 + 1e-6
    assert 0 < max(logged(trainer, "m2po/masked")) < 0.1


def test_bapo_reaches_the_share_or_both_ends(run):
    trainer = run("bapo", **OFF_POLICY)
    names = ("low", "high", "share")
    found = list(zip(*(logged(trainer, f"bapo/{name}") for name in names), strict=True))
    assert all(share >= 0.5 - 1e-6 or (low, high) in ((0.9, 3.0), (0.6, 1.2)) for low, high, share in found)
    assert any((low, high) != (0.6, 1.2) for low, high, _ in found)


def test_minpro_bounds_the_weight_that_a_product_does_not(run):
    largest = {
        rule: max(logged(run("minpro", rule=rule, **OFF_POLICY), "minpro/largest")) for rule in ("capped", "product")
    }
    assert largest["capped"] == pytest.approx(1.2)
    assert largest["product"] > 1.5


def test_gates_leave_a_fifth_of_the_tokens_whole_and_at_most_a_quarter_of_the_others(run):
    weight = {name: logged(run(name, max_steps=10), "gate/weight") for name in ("top_entropy", "egspo")}
    assert all(share == pytest.approx(0.2, abs=0.02) for share in weight["top_entropy"])
    assert all(0.2 < share <= 0.22 + 0.25 * 0.8 for share in weight["egspo"])


def test_vcpo_shortens_stale_steps_only(run):
    trainer = run("vcpo", **OFF_POLICY)
    factors = logged(trainer, "vcpo/step_factor")
    assert factors[::4] == [1.0] * 8  # fresh rollouts
    assert min(factors) < 0.95
    assert set(logged(trainer, "learning_rate")) == {3e-4}
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {3e-4}


def test_replayed_rows_are_some_steps_old(run):
    trainer = run("replay_uniform")
    age = logged(trainer, "replay/age")  # the first step has nothing to replay
    assert age[0] == 1
    assert 2 < mean(age[4:]) < 3  # the four steps before this one, uniformly: 2.5


def test_stale_rollouts_have_other_ratios(run):
    clipped = {}
    for updates in (0, 4):
        stale = rlkit.catalog()["stale"].with_options(updates=updates)
        clipped[updates] = sum(logged(run(stale, learning_rate=3e-4), "clip_ratio/region_mean/trained_rows"))
    assert clipped[0] == 0
    assert clipped[4] > 0

"""ExGRPO: which prompts come from the pool, which row joins them, and how its ratio is shaped."""

import random
from collections import Counter

import pytest
import torch

import rlkit
from rlkit.method import Context, Method
from rlkit.methods import exgrpo
from rlkit.methods.group_replay import pick
from tests.tiny import half_reward, history


def test_bucket_weights_hand_computed():
    weights = [exgrpo.bucket_weight(k, 8) for k in range(1, 8)]
    shares = [w / sum(weights) for w in weights]
    assert shares == pytest.approx([0.004, 0.054, 0.242, 0.399, 0.242, 0.054, 0.004], abs=1e-3)


def test_shaped_ratio_hand_computed():
    w = torch.tensor([0.1, 0.9, 1.0], requires_grad=True)
    f = exgrpo.shaped_ratio(w)
    assert f.tolist() == pytest.approx([0.5, 0.9, 1 / 1.1])
    f.sum().backward()
    assert w.grad.tolist() == pytest.approx([0.1 / 0.2**2, 0.1 / 1.0**2, 0.1 / 1.1**2])  # beta / (w + beta)^2


def test_objective_by_segment_hand_computed():
    logps, old = torch.tensor([[-1.0, -0.5, -0.2]]), torch.tensor([[-1.2, -0.4, -0.2]])
    options = {"clip": None, "beta": 0.1, "rule": "shaped"}
    ctx = Context(
        logps=logps, old_logps=old, advantages=torch.full((1, 3), 2.0), mask=torch.ones(1, 3), options=options
    )
    rho = (logps - old).exp()
    for replayed, expected in (
        (0, 2 * rho),
        (3, 2 * rho / (rho + 0.1)),
        (2, torch.cat([2 * rho[:, :2] / (rho[:, :2] + 0.1), 2 * rho[:, 2:]], 1)),
    ):
        there = ctx.__class__(**{**vars(ctx), "extras": {"replayed": torch.tensor([replayed])}})
        assert torch.allclose(exgrpo.objective(there), expected)
    plain = ctx.__class__(
        **{**vars(ctx), "options": {**options, "rule": "plain"}, "extras": {"replayed": torch.tensor([3])}}
    )
    assert exgrpo.objective(plain)[0].tolist() == pytest.approx([2 * 1.2, 2 * rho[0, 1].item(), 2.0])


def pool(**solved):
    """A pool of prompts with one stored row each, by how many of 4 rollouts were right."""
    memory = exgrpo.Pool()
    for key, k in solved.items():
        memory.buffer.add({"prompt": key, "born": 0, "right": True})
        memory._sort_in(key, k / 4, 4, retire=True)
    return memory


def test_half_solved_prompts_are_drawn_most():
    memory = pool(a=1, b=2, c=2, d=3)
    counts = Counter(key for seed in range(600) for key in memory._pool(1, 4, 1.0, random.Random(seed)))
    share = exgrpo.bucket_weight(2, 4) / sum(exgrpo.bucket_weight(k, 4) for k in (1, 2, 3))
    assert (counts["b"] + counts["c"]) / 600 == pytest.approx(share, abs=0.06)
    assert counts["b"] == pytest.approx(counts["c"], abs=60)
    assert all(len(set(memory._pool(3, 4, 1.0, random.Random(s)))) == 3 for s in range(30))
    assert sorted(memory._pool(9, 4, 1.0, random.Random(0))) == ["a", "b", "c", "d"]


def test_solved_prompts_retire_for_good_and_others_change_buckets():
    memory = pool(a=1, b=4)
    assert memory.retired == {"b"} and memory.buffer.of("b") == [] and memory._bucket == {"a": 1}
    memory._sort_in("a", 3 / 4, 4, retire=True)
    assert memory._bucket == {"a": 3} and len(memory.buckets[1]) == 0
    memory.buffer.add({"prompt": "b", "born": 1, "right": True})
    memory._sort_in("b", 2 / 4, 4, retire=True)
    assert memory.buffer.of("b") == [] and "b" not in memory._bucket
    kept = exgrpo.Pool()
    kept.buffer.add({"prompt": "b", "born": 0, "right": True})
    kept._sort_in("b", 1.0, 4, retire=False)
    assert kept._bucket == {"b": 4}


def watched(build, **options):
    seen = []

    def weight(ctx):
        seen.append((ctx.step, dict(ctx.extras)))
        return torch.ones_like(ctx.logps)

    settings = {"max_steps": 6, "learning_rate": 1e-2, "reward": half_reward}
    method = rlkit.catalog()["exgrpo"].with_options(**{"start_at": 0.0, **options})
    trainer = build(method=Method.combine(method, Method("spy", token_weight=weight)), **settings)
    trainer.train()
    return trainer, seen


def test_at_most_half_of_the_prompts_are_replayed_one_row_each(build):
    trainer, seen = watched(build)
    (memory,) = trainer.method.state
    for step, extras in seen:
        old = extras["age"] > 0
        per_group = Counter(extras["group"][old].tolist())
        assert len(per_group) <= 4 and set(per_group.values()) <= {1}
        assert (extras["reward"][old] == 1).all()
        assert step or not old.any()
    assert sum(int((extras["age"] > 0).sum()) for _, extras in seen) > 0
    assert all(row["right"] for row in memory.buffer)


def test_replay_waits_until_enough_rollouts_are_right(build):
    _, seen = watched(build, start_at=1.0)
    assert not any((extras["age"] > 0).any() for _, extras in seen)


def test_the_row_of_lowest_entropy_under_the_present_policy_joins(build, monkeypatch):
    """Of the rows offered, the one that is picked has the smallest mean entropy of those that were scored."""
    offered = []
    original = exgrpo.GroupReplay._entropies

    def noted(self, ctx, rows, groups, wanted, trainer):
        found = original(self, ctx, rows, groups, wanted, trainer)
        offered.extend((found[g], wanted[g]) for g in found)
        return found

    monkeypatch.setattr(exgrpo.GroupReplay, "_entropies", noted)
    watched(build, per_prompt=16)
    several = [(values, rows) for values, rows in offered if len(rows) > 1]
    assert several
    for values, rows in several:
        (picked,) = pick("lowest_entropy", rows, 1, random.Random(0), values)
        assert values[[r is picked for r in rows].index(True)] == min(values)


def test_logs_tell_the_pool(build):
    trainer, _ = watched(build)
    assert history(trainer, "replay/pool")[-1][0] > 0

"""Old rollouts in a prompt's own group: which, how many, at which ratio, and what they cost."""

import itertools
import random
import statistics
from collections import Counter

import pytest
import torch

import rlkit
from rlkit.method import Method
from rlkit.methods import group_replay
from tests.tiny import half_reward, history, tiny_data

SMALL = {"max_steps": 6, "learning_rate": 1e-2, "reward": half_reward}
"""16 prompts, 8 a step: each comes every second step."""


def watched(build, name, seams=None, **settings):
    """A trained run, and the contexts that reached its loss with the step of each."""
    seen = []

    def weight(ctx):
        seen.append((ctx.step, ctx))
        return torch.ones_like(ctx.logps)

    options = {k: settings.pop(k) for k in list(settings) if k in rlkit.catalog()[name].options}
    method = Method.combine(
        rlkit.catalog()[name].with_options(**options), Method("spy", token_weight=weight, **(seams or {}))
    )
    trainer = build(method=method, **{**SMALL, **settings})
    trainer.train()
    assert seen
    (memory,) = trainer.method.state
    return trainer, seen, memory


def groups_of(ctx):
    """Places of each group of a batch."""
    group = ctx.extras["group"].tolist()
    return [[i for i, g in enumerate(group) if g == n] for n in sorted(set(group))]


def test_most_varied_rewards_hand_computed():
    rewards = [1, 0, 1, 1, 0]
    assert sorted(rewards[i] for i in group_replay.max_variance(rewards, 4)) == [0, 0, 1, 1]
    assert sorted(rewards[i] for i in group_replay.max_variance(rewards, 3)) == [0, 1, 1]  # 0 0 1 varies as much
    assert sorted(group_replay.max_variance(rewards, 9)) == [0, 1, 2, 3, 4]
    assert group_replay.max_variance([0.5], 1) == [0]


@pytest.mark.parametrize("seed", range(8))
def test_most_varied_rewards_are_those_that_all_subsets_give(seed):
    rng = random.Random(seed)
    rewards = [round(rng.random() * 4) / 4 for _ in range(9)]
    found = [rewards[i] for i in group_replay.max_variance(rewards, 4)]
    every = itertools.combinations(rewards, 4)
    best = max(every, key=lambda s: (round(statistics.pvariance(s), 9), sum(s)))
    assert (statistics.pvariance(found), sum(found)) == pytest.approx((statistics.pvariance(best), sum(best)))


def test_advantages_of_the_parts_hand_computed():
    rewards = torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, float("nan")]])
    replayed = torch.tensor([[False, False, True, True], [False, False, True, True]])
    half = 0.5 / (0.5**0.5 + 1e-4)
    expected = torch.tensor([[half, -half, 0, 0], [half, -half, 0, 0]])
    assert torch.allclose(group_replay.split_advantages(rewards, replayed), expected)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("recent", [2, 3]), ("highest", [1, 3]), ("lowest_entropy", [2, 0]), ("max_variance", [0, 1])],
)
def test_rules_of_the_draw(rule, expected):
    stored = [{"place": i, "reward": r} for i, r in enumerate([0.0, 1.0, 0.5, 1.0])]
    found = group_replay.pick(rule, stored, 2, random.Random(0), [0.2, 0.4, 0.1, 0.3])
    rewards = [stored[i]["reward"] for i in expected]
    places = [row["place"] for row in found]
    assert places == expected or (rule == "max_variance" and sorted(row["reward"] for row in found) == sorted(rewards))


def test_share_of_useful_rows_hand_computed():
    rewards = torch.tensor([[1.0] * 4 + [0.0] * 2, [0.0] * 6])
    kinds = {"stored": 6, "count": 2, "repeats": 40}
    assert group_replay.useful_share(rewards, "max_variance", **kinds).tolist() == [1.0, 0.0]
    assert group_replay.useful_share(rewards, "highest", **kinds).tolist() == [0.0, 0.0]
    share = float(group_replay.useful_share(rewards, "random", **kinds)[0])
    assert share == pytest.approx(8 / 15, abs=0.25)  # 4 x 2 of 15 pairs differ


def test_random_draws_reach_every_row():
    stored = [{"place": i} for i in range(4)]
    rng = random.Random(0)
    seen = Counter(r["place"] for _ in range(400) for r in group_replay.pick("random", stored, 2, rng, ()))
    assert all(150 < seen[i] < 250 for i in range(4))


@pytest.mark.parametrize("name", ["repo", "rlep", "exgrpo"])
def test_old_rows_take_places_of_their_own_prompts_group(build, name):
    """Each is a row that an earlier step drew for that very prompt, and it stands at the end of its group."""
    settings = {"repo": {"at_least": 4}, "rlep": {"first_run": 0, "at_least": 1}, "exgrpo": {"start_at": 0.0}}[name]
    drawn = {}
    trainer, seen, _ = watched(build, name, **settings)
    known = set(tiny_data()["prompt"])
    for step, ctx in seen:
        e = ctx.extras
        prompts = trainer.processing_class.batch_decode(e["prompt_ids"], skip_special_tokens=True)
        ids = [
            tuple(row[mask].tolist())
            for row, mask in zip(e["completion_ids"], e["completion_mask"].bool(), strict=True)
        ]
        assert set(prompts) <= known
        for places in groups_of(ctx):
            assert len({prompts[i] for i in places}) == 1 and len(places) == 4
            assert (e["age"][places] > 0).sum() <= 2
        for i, (prompt, completion) in enumerate(zip(prompts, ids, strict=True)):
            age = int(e["age"][i])
            assert age <= step and int(e["replayed"][i]) == (len(completion) if age else 0)
            if age:
                assert (prompt, completion) in drawn[step - age]
            else:
                drawn.setdefault(step, set()).add((prompt, completion))
    assert any((ctx.extras["age"] > 0).any() for _, ctx in seen)


def test_ratio_of_old_rows_is_to_the_policy_that_drew_them_unless_scored_again(build):
    for source, moved in (("stored", True), ("recomputed", False)):
        _, seen, _ = watched(build, "repo", at_least=4, ratio_source=source)
        fresh, old = [], []
        for _, ctx in seen:
            drift = ((ctx.logps - ctx.old_logps).abs() * ctx.mask).amax(1)
            is_old = ctx.extras["age"] > 0
            fresh += drift[~is_old].tolist()
            old += drift[is_old].tolist()
        assert max(fresh) == 0 and old
        assert (max(old) > 1e-2) == moved, source


def test_tokens_that_come_from_the_buffer_are_not_charged(build):
    for name, settings in (("repo", {"at_least": 4}), ("soup", {})):
        trainer, seen, _ = watched(build, name, **settings)
        lengths = sum(int((ctx.mask.sum(1) - ctx.extras["replayed"]).sum()) for _, ctx in seen)
        replayed = sum(int(ctx.extras["replayed"].sum()) for _, ctx in seen)
        charged = history(trainer, "generated_tokens")[-1][0]
        if name == "repo":
            assert charged == lengths
        else:  # the policy goes on for up to 8 tokens, and a row is cut at 8
            assert lengths <= charged <= lengths + replayed
        assert replayed > 0


def test_repo_waits_for_a_full_queue_and_standardises_the_parts_apart(build):
    _, seen, memory = watched(build, "repo", at_least=8, per_prompt=8, max_steps=8)
    assert not any((ctx.extras["age"] > 0).any() for step, ctx in seen if step < 4)  # two visits of 4 rows
    assert any((ctx.extras["age"] > 0).any() for step, ctx in seen if step >= 4)
    assert all(len(memory.buffer.of(key)) == 8 for key in memory.buffer.prompts)
    for _, ctx in seen:
        for places in groups_of(ctx):
            old = ctx.extras["age"][places] > 0
            A = ctx.advantages[places, 0]
            for part in (A[old], A[~old]):
                assert float(part.sum()) == pytest.approx(0, abs=1e-4)


def test_taking_the_highest_rewards_leaves_old_rows_without_advantage(build):
    """RePO's released rule on right-or-wrong rewards: all taken rows are right, so none is better than the others."""
    shares = {}
    for rule in ("highest", "max_variance"):
        _, seen, _ = watched(build, "repo", at_least=6, draw=rule, max_steps=10, reward=_often_right)
        A = torch.cat([ctx.advantages[ctx.extras["age"] > 0, 0] for _, ctx in seen])
        shares[rule] = float((A != 0).float().mean())
    assert shares["max_variance"] > shares["highest"]
    assert shares["highest"] < 0.2


def _often_right(completions, **columns):
    return [float(sum(map(ord, text)) % 2) for text in completions]


def test_soup_keeps_a_head_of_an_old_row_and_its_log_probs(build):
    trainer, seen, _ = watched(build, "soup", per_prompt=4, max_steps=6)
    at_birth, checked = {}, 0
    for step, ctx in seen:
        e = ctx.extras
        prompts = trainer.processing_class.batch_decode(e["prompt_ids"], skip_special_tokens=True)
        for i, prompt in enumerate(prompts):
            n, age = int(e["replayed"][i]), int(e["age"][i])
            ids, old = e["completion_ids"][i], ctx.old_logps[i]
            length = int(ctx.mask[i].sum())
            if n:
                rows = at_birth[step - age, prompt]
                heads = [(row[0][:n].tolist(), row[1][:n].tolist(), len(row[0])) for row in rows]
                assert any(h[:2] == (ids[:n].tolist(), old[:n].tolist()) and n <= h[2] / 2 for h in heads)
                checked += 1
            assert ((ctx.logps[i] - old).abs() * ctx.mask[i])[n:].max() < 1e-5  # the present policy drew the rest
            at_birth.setdefault((step, prompt), []).append((ids[:length], old[:length]))
        places = e["age"] > 0
        assert int(places.sum()) in (0, 8)  # one of four rows in each of 8 groups
    assert checked


def test_a_head_is_not_stretched_beyond_the_longest_completion(build):
    trainer, seen, _ = watched(build, "soup", prefix=1.0, mix=0.5)
    longest = max(int(ctx.mask.sum(1).max()) for _, ctx in seen)
    assert longest <= trainer.max_completion_length == 8
    assert any((ctx.extras["replayed"] == ctx.mask.sum(1)).any() for _, ctx in seen if (ctx.extras["age"] > 0).any())


@pytest.mark.parametrize("name", ["repo", "soup", "rlep", "exgrpo"])
def test_with_nothing_stored_it_is_its_parent_bit_for_bit(build, name):
    settings = {"store": "correct", "right_at": 99.0}
    settings |= {"first_run": 0} if name == "rlep" else {"clip": 0.2, "start_at": 0.0} if name == "exgrpo" else {}
    parent = rlkit.catalog()[name].parent
    method = rlkit.catalog()[name].with_options(**settings, advantage="joint")
    named = {"skip_zero_advantage": name != "exgrpo"}
    runs = [build(method=m, named=named, **{**SMALL, "max_steps": 3}) for m in (parent, method)]
    for trainer in runs:
        trainer.train()
    logs = ("loss", "grad_norm", "reward", "generated_tokens", "trained_tokens")
    found, expected = history(runs[1], *logs), history(runs[0], *logs)
    if name == "exgrpo":  # its surrogate restates the loss
        assert all(a == pytest.approx(b, rel=1e-5, abs=1e-6) for a, b in zip(found, expected, strict=True))
    else:
        assert found == expected


def test_switches_without_such_a_value_are_refused(build):
    for options, told in (({"draw": "rand"}, "no draw='rand'"), ({"advantage": "frozen"}, "replay_uniform")):
        method = rlkit.catalog()["repo"].with_options(**options)
        with pytest.raises(ValueError, match=told):
            build(method=method, **SMALL).train()

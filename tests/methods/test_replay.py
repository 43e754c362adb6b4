"""Replay through `trainer.train()`: what joins a batch, with which ratio, how old, and what stays in the buffer."""

from collections import Counter

import pytest
import torch

import rlkit
from rlkit.method import Method, get_method
from rlkit.methods.replay import kept_by
from tests.tiny import half_reward, history, length_reward, tiny_data

FRESH = 32
"""Rows that a step draws: 8 prompts, groups of 4."""


class Spy:
    """Hooks that change nothing: what the policy drew in each step, and what reached the loss."""

    def __init__(self):
        self.drawn, self.batches = [], []

    def method(self, **seams):
        """Functions, since a trainer copies the objects whose methods are hooks."""
        drawn, batches = self.drawn, self.batches

        def advantage(ctx):
            rows = zip(map(str, ctx.columns["prompt"]), map(tuple, ctx.completion_ids), strict=True)
            drawn.append((ctx.step, list(rows)))

        def weight(ctx):
            batches.append((ctx.step, ctx))
            return torch.ones_like(ctx.logps)

        return Method("spy", **{"advantage": advantage, "token_weight": weight, **seams})


def decoded(trainer, ctx):
    """(prompt, completion ids) of each row of a batch, read from its padded tensors."""
    e = ctx.extras
    prompts = trainer.processing_class.batch_decode(e["prompt_ids"], skip_special_tokens=True)
    rows = zip(e["completion_ids"], e["completion_mask"].bool(), strict=True)
    return list(zip(prompts, (tuple(ids[mask].tolist()) for ids, mask in rows), strict=True))


def replaying(name="replay_uniform", **options):
    return rlkit.catalog()[name].with_options(**options)


def spied(build, options=None, name="replay_uniform", seams=None, **config):
    """A trained run of a replay method, and what was seen of it."""
    spy = Spy()
    method = Method.combine(spy.method(**(seams or {})), replaying(name, **(options or {})))
    trainer = build(method=method, **{"max_steps": 5, "learning_rate": 1e-2, **config})
    trainer.train()
    assert spy.batches
    (memory,) = trainer.method.state
    return trainer, spy, memory.buffer


def logged(trainer, name):
    return [line.get(name) for line in trainer.state.log_history if "loss" in line]


def test_ages_are_true_and_no_row_meets_itself(build):
    """Age = step - birth; a replayed row is at least one step old; no row is in a batch twice."""
    trainer, spy, _ = spied(build, {"buffer": 64, "repeat": 2})
    born = dict(spy.drawn)
    for step, ctx in spy.batches:
        ages = ctx.extras["age"].tolist()
        rows = decoded(trainer, ctx)
        assert all(row in born[step - age] for row, age in zip(rows, ages, strict=True))
        fresh = [row for row, age in zip(rows, ages, strict=True) if age == 0]
        assert Counter(fresh) == Counter(born[step])  # each fresh row once, and no copy of it from the buffer
        assert len(rows) == (FRESH if step == 0 else 2 * FRESH)
        assert max(ages) <= 2  # 64 rows are two steps
        old = Counter((row, age) for row, age in zip(rows, ages, strict=True) if age)
        drawn = Counter((row, age) for age in (1, 2) if step >= age for row in born[step - age])
        assert old <= drawn


def test_prompts_read_the_same_whatever_they_are_padded_beside(build):
    """Prompts have 5 to 8 tokens: cutting a left-padded one at the wrong end would change its text."""
    trainer, spy, _ = spied(build, {"buffer": 256, "repeat": 3})
    known = set(tiny_data()["prompt"])
    assert len({len(prompt) for prompt in known}) > 1
    for _, ctx in spy.batches:
        assert {prompt for prompt, _ in decoded(trainer, ctx)} <= known


def test_fresh_rows_have_ratio_one_and_old_rows_the_ratio_to_the_policy_that_drew_them(build):
    _, spy, _ = spied(build, {"buffer": 256, "repeat": 2})
    for step, ctx in spy.batches:
        old = ctx.extras["age"] > 0
        drift = (ctx.logps - ctx.old_logps).abs() * ctx.mask
        assert drift[~old].max() == 0
        assert old.any() == (step > 0)
        assert not old.any() or drift[old].max() > 1e-2
        assert not old.any() or drift[old].sum() > 0.01 * ctx.mask[old].sum()


def test_stored_log_probs_are_those_of_the_step_that_drew_the_row(build):
    """The policy of step s scores what it draws; a row that is replayed later brings those numbers along."""
    trainer, spy, _ = spied(build, {"buffer": 256, "repeat": 2})
    at_birth = {}
    for step, ctx in spy.batches:
        for i, (row, age) in enumerate(zip(decoded(trainer, ctx), ctx.extras["age"].tolist(), strict=True)):
            old = ctx.old_logps[i, : len(row[1])]
            if age == 0:
                at_birth[step, row] = old
            else:
                assert torch.equal(old, at_birth[step - age, row])


def test_pretending_that_old_rows_are_fresh_has_to_be_asked_for(build):
    """`recomputed` and `one` give replayed rows ratio 1: the silent fault of replay that stores no log-probs."""
    for source in ("recomputed", "one"):
        _, spy, _ = spied(build, {"buffer": 256, "repeat": 2, "ratio_source": source})
        drift = max(float(((c.logps - c.old_logps).abs() * c.mask).max()) for _, c in spy.batches)
        assert drift < 1e-5, source
        assert any((c.extras["age"] > 0).any() for _, c in spy.batches)
        assert ("old_per_token_logps" in spy.batches[-1][1].extras) == (source == "recomputed")


def test_clip_metrics_see_old_rows(build):
    for options, is_clipped in (({}, True), ({"ratio_source": "one"}, False)):
        method = replaying(buffer=256, repeat=3, **options)
        trainer = build(method=method, max_steps=6, learning_rate=2e-2, reward=half_reward)
        trainer.train()
        shares = [x for x in logged(trainer, "clip_ratio/region_mean/trained_rows") if x is not None]
        assert (sum(shares) > 0) == is_clipped
        assert logged(trainer, "replay/age")[0] is None and logged(trainer, "replay/age")[1] == 1


@pytest.mark.parametrize(
    "options",
    [{"buffer": 0}, {"store": "correct", "right_at": 99.0}, {"repeat": 1}, {"buffer": 64, "mix": 0.0, "repeat": 1}],
    ids=["off", "nothing-stored", "nothing-left-to-replay", "share-0"],
)
def test_without_an_old_row_it_is_grpo_bit_for_bit(build, options):
    names = ("loss", "grad_norm", "reward", "rows_left_out", "generated_tokens", "trained_tokens")
    runs = [build(method=m, max_steps=4) for m in ("grpo", replaying(**options))]
    for trainer in runs:
        trainer.train()
    assert history(runs[0], *names) == history(runs[1], *names)
    assert all(torch.equal(a, b) for a, b in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True))


def test_the_buffer_holds_the_last_rows_in_order(build):
    trainer, spy, buffer = spied(build, {"buffer": 80})
    assert [r["born"] for r in buffer] == [2] * 16 + [3] * 32 + [4] * 32
    decode = trainer.processing_class.batch_decode
    last = Counter(spy.drawn[-1][1])
    rows = [r for r in buffer if r["born"] == 4]
    prompts = decode([r["prompt_ids"] for r in rows], skip_special_tokens=True)
    stored = Counter(zip(prompts, (tuple(r["completion_ids"].tolist()) for r in rows), strict=True))
    assert stored == last
    assert all(r["old_per_token_logps"].shape == r["completion_ids"].shape == r["entropies"].shape for r in buffer)


def test_rows_too_old_are_forgotten(build):
    _, spy, buffer = spied(build, {"buffer": 512, "max_age": 1, "repeat": 3})
    assert {int(c.extras["age"].max()) for _, c in spy.batches[1:]} == {1}
    assert {r["born"] for r in buffer} == {3, 4}


@pytest.mark.parametrize(("store", "told"), [("correct", "right"), ("nonzero", "advantages")])
def test_only_some_rows_are_stored(build, store, told):
    _, _, buffer = spied(build, {"buffer": 512, "store": store}, reward=half_reward)
    assert len(buffer) and all(bool(r[told]) for r in buffer)
    _, _, every = spied(build, {"buffer": 512}, reward=half_reward)
    assert len(every) == 5 * FRESH > len(buffer)


def test_the_rules_of_storing():
    right, wrong = {"right": True}, {"right": False}
    assert [kept_by("all", wrong, 0.0), kept_by("correct", wrong, 1.0), kept_by("correct", right, 0.0)] == [
        True,
        False,
        True,
    ]
    assert [kept_by("nonzero", wrong, -0.5), kept_by("nonzero", right, 0.0)] == [True, False]


def test_rewards_that_are_all_equal_are_no_trouble(build):
    """A heap keyed by score would have to order rows of the same score, and fail."""
    trainer, _, buffer = spied(build, {"buffer": 64}, reward=lambda completions, **c: [1.0] * len(completions))
    assert len(buffer) == 64
    assert all(norm == 0 for (norm,) in history(trainer, "grad_norm"))
    _, _, empty = spied(
        build, {"buffer": 64, "store": "nonzero"}, reward=lambda completions, **c: [1.0] * len(completions)
    )
    assert len(empty) == 0


def test_advantages_a_token_go_in_and_come_out(build):
    def each(ctx):
        A = torch.zeros(32, int(ctx.lengths.max()))
        for i, ids in enumerate(ctx.completion_ids):
            A[i, : len(ids)] = torch.tensor([token / 10 - 1 for token in ids])
        return A

    _trainer, spy, _ = spied(build, {"buffer": 128, "repeat": 3}, seams={"advantage": each})
    for _, ctx in spy.batches:
        expected = (ctx.extras["completion_ids"] / 10 - 1) * ctx.mask
        assert torch.allclose(ctx.advantages * ctx.mask, expected)
    assert any((ctx.extras["age"] > 0).any() for _, ctx in spy.batches)


def test_right_rows_stay_longer_under_a_positive_bias(build):
    options = {"buffer": 64, "delta": 0.5, "right_at": 0.7}
    _, _, buffer = spied(build, options, name="replay_positive", max_steps=6)
    assert len(buffer.kept) == 32 and all(r["right"] for r in buffer.kept.values())
    assert [r["born"] for r in buffer.fresh.values()] == [5] * 32
    _, _, plain = spied(build, {**options, "delta": 0.0}, max_steps=6)
    assert {r["born"] for r in plain} == {4, 5} and not plain.kept
    assert min(r["born"] for r in buffer) < 4


def test_a_batch_can_be_all_from_the_buffer(build):
    _, spy, _ = spied(build, {"buffer": 256, "mix": 1.0, "repeat": 1})
    ages = [c.extras["age"] for _, c in spy.batches]
    assert (ages[0] == 0).all() and all((age > 0).all() for age in ages[1:])
    _, spy, _ = spied(build, {"buffer": 256, "mix": 0.25, "repeat": 0.5})
    counts = [(int((c.extras["age"] == 0).sum()), int((c.extras["age"] > 0).sum())) for _, c in spy.batches]
    assert counts == [(16, 0)] + [(12, 4)] * 4


def test_batches_divide_into_parts(build):
    config = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    trainer, spy, _ = spied(build, {"buffer": 256, "repeat": 1.3}, **config)
    per_step = Counter()
    for step, ctx in spy.batches:
        per_step[step] += len(ctx.extras["age"])
    assert per_step == {0: 32, 1: 40, 2: 40, 3: 40, 4: 40}  # 41.6 rounds to 42; 40 is the next that divides
    assert trainer.state.global_step == 5


def test_replayed_rows_are_no_part_of_a_fresh_group(build):
    _, spy, _ = spied(build, {"buffer": 256, "repeat": 2})
    for _, ctx in spy.batches:
        group, age = ctx.extras["group"], ctx.extras["age"]
        assert sorted(group[age == 0].tolist()) == sorted([*range(8)] * 4)
        assert (group[age > 0] >= 8).all()
        one = {int(g): {int(a) for a in age[group == g]} for g in group.unique()}
        assert all(len(ages) == 1 for ages in one.values())


def test_tokens_are_charged_once_and_trained_as_often_as_they_are(build):
    trainer, spy, _ = spied(build, {"buffer": 256, "repeat": 2})
    lengths = [sum(len(ids) for _, ids in rows) for _, rows in spy.drawn]
    assert history(trainer, "generated_tokens")[-1][0] == sum(lengths)
    trained = sum(int(ctx.mask.sum()) for _, ctx in spy.batches)
    assert history(trainer, "trained_tokens")[-1][0] == trained > sum(lengths)


def test_how_far_the_policy_has_moved_is_logged_without_changing_the_run(build):
    runs = [build(method=replaying(watch=w), max_steps=4, learning_rate=1e-2) for w in (False, True)]
    for trainer in runs:
        trainer.train()
    assert history(runs[0], "loss", "grad_norm") == history(runs[1], "loss", "grad_norm")
    shares = logged(runs[1], "replay/effective_share")
    assert shares[0] is None and all(0 < share < 1 for share in shares[1:])
    assert all(drift > 0 for drift in logged(runs[1], "replay/drift")[1:])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ratio_source": "store"}, "there is no ratio_source='store'. Did you mean 'stored'"),
        ({"store": "right"}, "there is no store='right'"),
        ({"mix": 1.5}, "mix is a share from 0 to 1, not 1.5"),
        ({"delta": -1}, "delta is a share"),
    ],
    ids=["source", "store", "mix", "delta"],
)
def test_switches_without_such_a_value_are_refused(build, options, told):
    with pytest.raises(ValueError, match=told):
        build(method=replaying(**options)).train()


GROUPS_OF_FIVE = {"num_generations": 5, "per_device_train_batch_size": 20, "max_steps": 2, "loss_type": "dr_grpo"}


def test_with_the_median_baseline_the_pivots_are_neither_stored_nor_replayed(build):
    trainer = build(method="mc_grpo+replay_uniform", scale_rewards="none", **GROUPS_OF_FIVE)
    trainer.train()
    (memory,) = trainer.method.state
    assert len(memory.buffer) == 2 * 4 * 4  # steps, prompts, rollouts without the pivot
    assert all(row["counted"] for row in memory.buffer)
    left_out = [share for (share,) in history(trainer, "rows_left_out")]
    assert left_out[0] >= 4 / 20 and left_out[1] >= 4 / 36  # pivots; 16 old rows have joined


def test_without_a_buffer_the_median_baseline_is_left_alone(build):
    alone, combined = get_method("mc_grpo"), get_method("mc_grpo+replay_uniform").with_options(buffer=0)
    seen = []
    for method in (alone, combined):
        trainer = build(method=method, scale_rewards="none", **GROUPS_OF_FIVE)
        trainer.train()
        seen.append(history(trainer, "loss", "grad_norm", "reward"))
    assert seen[0] == seen[1]


def test_old_rows_under_a_surrogate_keep_their_ratio(build):
    """M2PO masks the stale tokens that drift most; with ratio 1 there would be none."""
    trainer = build(method="m2po+replay_uniform", max_steps=5, learning_rate=2e-2, reward=length_reward)
    trainer.train()
    moments = logged(trainer, "m2po/second_moment")
    assert moments[0] < 1e-9 and max(moments[1:]) > 1e-3

"""RLEP: a first run that collects, the weights of the start again, a second run that replays."""

import torch

import rlkit
from rlkit.method import Method
from rlkit.methods.rlep import imitate
from tests.tiny import half_reward, history, tiny_model

SETTINGS = {"learning_rate": 1e-2, "reward": half_reward, "max_steps": 8}


def rlep(**options):
    return rlkit.catalog()["rlep"].with_options(**{"first_run": 4, "at_least": 1, **options})


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def watched(build, method, **settings):
    """A trained run; weights before each step, and what reached the loss."""
    before, seen = [], []

    def note(trainer):
        class Note:
            def on_step_begin(self, args, state, control, **about):
                before.append(weights(trainer).clone())

        return Note()

    def weight(ctx):
        seen.append((ctx.step, ctx.extras["age"].tolist(), ctx.extras["reward"].tolist()))
        return torch.ones_like(ctx.logps)

    spy = Method("spy", token_weight=weight, callbacks=(note,))
    trainer = build(method=Method.combine(method, spy), **{**SETTINGS, **settings})
    trainer.train()
    return trainer, before, seen


def test_the_second_run_starts_where_the_first_did(build):
    trainer, before, _ = watched(build, rlep())
    assert torch.equal(before[4], before[0])
    assert not torch.equal(before[3], before[0])
    assert not torch.equal(weights(trainer), before[0])


def test_the_optimiser_starts_anew_too(build):
    """With mix=0 and the same prompts the second run would repeat the first; Adam's step count says which it is."""
    trainer, _, _ = watched(build, rlep(mix=0.5))
    assert {int(state["step"]) for state in trainer.optimizer.state.values()} == {4}


def test_right_rows_of_the_first_run_are_replayed_in_the_second_only(build):
    _, _, seen = watched(build, rlep())
    for step, ages, rewards in seen:
        old = [(age, reward) for age, reward in zip(ages, rewards, strict=True) if age]
        assert bool(old) == (step >= 4)
        assert all(reward == 1 and step - age < 4 for age, reward in old)


def test_the_store_does_not_change_in_the_second_run(build):
    trainer, _, _ = watched(build, rlep())
    (memory,) = trainer.method.state
    assert all(row["born"] < 4 and row["right"] for row in memory.buffer)
    assert len(memory.buffer) > 0 and not memory.start


def test_the_first_run_is_charged(build):
    trainer, _, _ = watched(build, rlep())
    plain = build(method="grpo", **{**SETTINGS, "max_steps": 4})
    plain.train()
    charged = [tokens for (tokens,) in history(trainer, "generated_tokens")]
    assert charged[3] == history(plain, "generated_tokens")[3][0]
    assert charged[4] > charged[3]


def test_a_run_killed_in_the_first_part_still_goes_back_to_the_start(build, tmp_path):
    whole = build(method=rlep(), **SETTINGS, save_strategy="steps", save_steps=2)
    whole.train()
    resumed = build(method=rlep(), **SETTINGS)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    again = build(method=rlep(), **SETTINGS)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    for other in (resumed, again):
        assert torch.equal(weights(other), weights(whole))


def test_scored_rows_have_ratio_1_and_stored_ones_do_not(build):
    for source, moved in (("recomputed", False), ("stored", True)):
        drift = []

        def weight(ctx, drift=drift):
            old = ctx.extras["age"] > 0
            drift.extend(((ctx.logps - ctx.old_logps).abs() * ctx.mask)[old].flatten().tolist())
            return torch.ones_like(ctx.logps)

        method = Method.combine(rlep(ratio_source=source), Method("spy", token_weight=weight))
        build(method=method, **SETTINGS).train()
        assert drift and (max(drift) > 1e-2) == moved


def test_imitation_makes_the_rows_likelier_and_looks_at_completions_only():
    model = tiny_model()
    rows = [([1, 4, 5], [6, 7, 2]), ([1, 8], [9, 2])]

    def logp(prompt, completion):
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0].log_softmax(-1)
        n = len(prompt)
        of = [logits[n - 1 + i, token] for i, token in enumerate(completion)]
        return float(sum(of))

    before = [logp(*row) for row in rows]
    imitate(model, rows, steps=30, size=2, rate=1e-2)
    assert all(logp(*row) > old + 1 for row, old in zip(rows, before, strict=True))


def test_imitation_is_the_mean_cross_entropy_of_completion_tokens():
    """One step of plain gradient descent by hand: the same direction as the mean of -log p over completion tokens."""
    rows = [([1, 4, 5], [6, 7, 2]), ([1, 8], [9, 2])]
    model, by_hand = tiny_model(), tiny_model()
    imitate(model, rows, steps=1, size=2, rate=1e-3)
    total = 0.0
    for prompt, completion in rows:
        logits = by_hand(input_ids=torch.tensor([prompt + completion])).logits[0].log_softmax(-1)
        total = total - sum(logits[len(prompt) - 1 + i, token] for i, token in enumerate(completion))
    (total / 5).backward()
    optimiser = torch.optim.AdamW(by_hand.parameters(), lr=1e-3, weight_decay=0.0)
    torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
    optimiser.step()
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)

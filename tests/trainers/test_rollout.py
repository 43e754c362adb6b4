"""The seam `rollout`, `needs`, and what hooks may ask the trainer for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rlkit.method import Context, Method
from tests.tiny import Build, half_reward, history, length_reward, tiny_data, tiny_model, tiny_tokenizer

NAMES = ("loss", "grad_norm", "reward", "num_tokens", "generated_tokens", "rows_left_out")


def by_hand(prompt: Any, completion: Any) -> Any:
    """Log-probs and entropies of a completion, from one unpadded row."""
    ids = torch.tensor([[*prompt, *completion]])
    logps = tiny_model()(ids).logits[0, :-1].log_softmax(-1)[-len(completion) :].detach()
    return logps.gather(1, torch.tensor(completion)[:, None])[:, 0], -(logps.exp() * logps).sum(1)


def train(build: Build, method: Method, **options: Any) -> Any:
    trainer = build(method=method, **{"max_steps": 1, **options})
    trainer.train()
    return trainer


def spying(seen: list[Context]) -> Any:
    def weight(ctx: Context) -> Any:
        seen.append(ctx)
        return torch.ones_like(ctx.logps)

    return weight


def test_generate_rows_as_a_rollout_is_trl(build: Build) -> None:
    same = Method("same", rollout=lambda ctx, rows, trainer: trainer.generate_rows(rows))
    runs = [train(build, m, reward=half_reward, max_steps=3) for m in ("grpo", same)]
    assert history(runs[0], *NAMES) == history(runs[1], *NAMES)


def test_a_rollout_sees_whole_groups(build: Build) -> None:
    seen = []

    def rollout(ctx: Context, rows: Any, trainer: Any) -> Any:
        seen.append((ctx, [row["id"] for row in rows]))
        return trainer.generate_rows(rows)

    train(build, Method("spy", rollout=rollout, options={"a": 1}))
    ((ctx, ids),) = seen
    assert list(ctx.groups) == [i // 4 for i in range(32)] and ctx.columns["id"] == ids
    assert all(len(set(ids[i : i + 4])) == 1 for i in range(0, 32, 4))
    assert (ctx.step, ctx.group_size, ctx.options["a"]) == (0, 4, 1)


def test_needs_gives_log_probs_to_rewards_advantage_and_loss(build: Build) -> None:
    seen: dict[str, Any] = {}
    late: list[Context] = []

    def confidence(completions: Any, logps: Any, entropies: Any, **columns: Any) -> list[float]:
        seen["reward"] = logps, entropies
        return [float(row.exp().mean()) for row in logps]

    def advantage(ctx: Context) -> None:
        seen["ctx"] = ctx

    method = Method(
        "sure", reward=confidence, advantage=advantage, token_weight=spying(late), needs=frozenset({"logps"})
    )
    trainer = train(build, method, reward=None)
    ctx, (logps, entropies) = seen["ctx"], seen["reward"]
    assert ctx.logps.shape == ctx.entropies.shape == (32, int(ctx.lengths.max()))
    for i in (0, 7, 31):
        prompt = tiny_tokenizer()(ctx.columns["prompt"][i])["input_ids"]
        lp, h = by_hand(prompt, ctx.completion_ids[i])
        n = len(lp)
        assert torch.allclose(logps[i], lp, atol=1e-5) and torch.allclose(entropies[i], h, atol=1e-5)
        assert torch.allclose(ctx.logps[i, :n], lp, atol=1e-5) and not ctx.logps[i, n:].any()
    assert "logps" not in ctx.columns
    assert torch.allclose(late[0].old_logps, late[0].logps, atol=1e-5) and "old_per_token_logps" in late[0].extras
    assert trainer.grade([trainer.train_dataset[0]], [[5, 2]])[0] > 0  # a reward that needs them can be asked anywhere


def hinted(rows: Any, trainer: Any) -> Any:
    """Drawn under a prompt with a hint before it, trained under the plain one."""
    got = trainer.generate_rows([{**row, "prompt": f"9-{row['prompt']}"} for row in rows])
    plain = trainer.tokenize([row["prompt"] for row in rows])
    return [{**g, "prompt_ids": p, "sample_prompt_ids": g["prompt_ids"]} for g, p in zip(got, plain, strict=True)]


def test_a_rollout_drawn_under_another_prompt_is_scored_without_being_asked(build: Build) -> None:
    seen: list[Context] = []
    drawn: list[Any] = []

    def rollout(ctx: Context, rows: Any, trainer: Any) -> Any:
        drawn.extend(hinted(rows, trainer))
        return drawn

    train(build, Method("hinted", rollout=rollout, token_weight=spying(seen)))
    (ctx,) = seen
    by_ids = {(tuple(g["prompt_ids"]), tuple(g["completion_ids"])): g for g in drawn}
    prompts = zip(ctx.extras["prompt_ids"], ctx.extras["prompt_mask"].bool(), strict=True)
    for i, (prompt, real) in enumerate(prompts):
        ids = ctx.extras["completion_ids"][i][ctx.mask[i].bool()].tolist()
        row = by_ids[tuple(prompt[real].tolist()), tuple(ids)]
        old, new = (by_hand(row[name], ids)[0] for name in ("sample_prompt_ids", "prompt_ids"))
        assert torch.allclose(ctx.old_logps[i, : len(ids)], old, atol=1e-5)
        assert torch.allclose(ctx.logps[i, : len(ids)], new, atol=1e-5)
    assert ((ctx.logps - ctx.old_logps).abs() * ctx.mask).max() > 0.01


def test_log_probs_that_come_with_a_rollout_stand_and_numbers_reach_the_loss(build: Build) -> None:
    seen: list[Context] = []
    early: list[Context] = []

    def rollout(ctx: Context, rows: Any, trainer: Any) -> Any:
        got = [{**g, "age": 0, "who": "policy"} for g in trainer.generate_rows(rows)]
        got[3] |= {"completion_ids": [4, 5, 2], "old_logps": [-0.5, -0.25, -0.125], "age": 7, "who": "expert"}
        return got

    def advantage(ctx: Context) -> None:
        early.append(ctx)

    trainer = train(build, Method("expert", rollout=rollout, advantage=advantage, token_weight=spying(seen)))
    assert early[0].columns["who"][2:5] == ["policy", "expert", "policy"] and early[0].columns["age"][3] == 7
    (ctx,) = seen
    assert "who" not in ctx.extras and ctx.extras["age"].shape == (32,)
    (at,) = (ctx.extras["age"] == 7).nonzero().flatten().tolist()
    assert ctx.old_logps[at, :3].tolist() == [-0.5, -0.25, -0.125]
    others = ctx.extras["age"] == 0
    assert torch.allclose(ctx.old_logps[others], ctx.logps[others], atol=1e-5)
    generated, drawn = history(trainer, "generated_tokens", "trained_tokens")[0]
    assert generated > 0 and ctx.mask.sum() == drawn


def test_what_is_drawn_is_charged_whether_it_is_used_or_not(build: Build) -> None:
    lengths: list[int] = []

    def twice(ctx: Context, rows: Any, trainer: Any) -> Any:
        first, second = trainer.generate_rows(rows), trainer.generate_rows(rows)
        lengths.append(sum(len(g["completion_ids"]) for g in [*first, *second]))
        for row in second[::4]:
            row["completion_ids"] = [3, 4, 5, 2]  # nobody has drawn these
        return second

    trainer = train(build, Method("twice", rollout=twice), max_steps=2)
    assert [x for (x,) in history(trainer, "generated_tokens")] == [lengths[0], sum(lengths)]
    assert trainer.generate_rows([]) == []


class Visits:
    """A reward with memory."""

    __name__ = "visits"

    def __init__(self) -> None:
        self.count, self.told = 0, list[Any]()

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        self.told.append((columns["learn"], columns["options"]["a"]))
        self.count += columns["learn"]
        return length_reward(completions)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_grading_in_a_hook_and_evaluation_do_not_teach_a_reward(build: Build) -> None:
    memory = Visits()

    def rollout(ctx: Context, rows: Any, trainer: Any) -> Any:
        got = trainer.generate_rows(rows)
        trainer.grade(rows, [g["completion_ids"] for g in got])
        return got

    def data(dataset: Any, trainer: Any) -> Any:
        trainer.collect([dataset[0]])
        return dataset

    method = Method("visits", data=data, rollout=rollout, reward=memory, state=(memory,), options={"a": 3})
    trainer = build(method=method, reward=None, max_steps=2, named={"eval_dataset": tiny_data(8)})
    trainer.train()
    trainer.evaluate()
    own = trainer.method.state[0]
    assert own.count == 2 and memory.count == 0
    assert own.told[:5] == [(False, 3), (False, 3), (True, 3), (False, 3), (True, 3)]
    assert set(own.told[5:]) == {(False, 3)}


def test_evaluation_generates_without_the_hook(build: Build) -> None:
    calls = []

    def rollout(ctx: Context, rows: Any, trainer: Any) -> Any:
        calls.append(len(rows))
        return [{**g, "flag": 1} for g in trainer.generate_rows(rows)]

    def reward(completions: Any, logps: Any, flag: Any = None, **columns: Any) -> Any:
        return length_reward(completions)

    method = Method("r", rollout=rollout, reward=reward, needs=frozenset({"logps"}))
    trainer = build(method=method, reward=None, max_steps=1, named={"eval_dataset": tiny_data(8)})
    assert trainer.evaluate()["eval_reward"] > 0 and not calls
    assert trainer.generated_tokens == trainer.uncharged_tokens == 0
    trainer.train()
    assert calls == [32] and trainer.evaluate()["eval_reward"] > 0


def test_hooks_log_at_every_time(build: Build) -> None:
    def advantage(ctx: Context) -> None:
        ctx.log("mine/early", ctx.step)

    def weight(ctx: Context) -> Any:
        ctx.log("mine/late", float(ctx.mask.sum()))
        ctx.log("mine/nan", float("nan"))
        return ctx.mask.float()

    def batch(trainer: Any, batch: Any) -> Any:
        trainer.log_value("mine/rows", len(batch["counted"]))
        with trainer.aside():
            trainer.log_value("mine/aside", 1.0)
        return batch

    method = Method("logs", advantage=advantage, token_weight=weight, batch=batch)
    config = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    trainer = train(build, method, max_steps=2, named={"skip_zero_advantage": False}, **config)
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert [line["mine/early"] for line in lines] == [0, 1] and [line["mine/rows"] for line in lines] == [32, 32]
    assert lines[0]["mine/late"] == pytest.approx(lines[0]["num_tokens"] / 4, rel=0.7) and lines[0]["mine/late"] > 0
    assert not any("nan" in name or "aside" in name for line in lines for name in line)


def _changed(**changes: Any) -> Any:
    return lambda got: [{**got[0], **changes}, *got[1:]]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda got: got[1:], "expected one dict for each of 32 rows, got 31 of list"),
        (lambda got: None, "got NoneType"),
        (_changed(age=1), "row 1 has no 'age'; every row needs it"),
        (lambda got: [{"prompt_ids": [1]}] * 32, "row 0 has no 'completion_ids'"),
        (_changed(completion_ids=[]), r"expected completion_ids of row 0 as token ids, .*got \[\]"),
        (_changed(completion_ids=[3] * 9), "row 0 has 9 tokens, and max_completion_length is 8"),
        (_changed(old_logps=[-1.0] * 30), r"expected old_logps of row 0 as at most \d finite numbers"),
        (lambda got: [{**g, "age": float("inf")} for g in got], "expected finite numbers in 'age'"),
        (
            lambda got: [{**g, "advantages": 1.0} for g in got],
            "'advantages' is a column of the data or the trainer's own",
        ),
        (lambda got: [{**g, "gold": "7"} for g in got], "'gold' is a column of the data"),
    ],
)
def test_rollouts_of_the_wrong_kind_are_an_error(build: Build, spoil: Any, told: str) -> None:
    method = Method("mine", rollout=lambda ctx, rows, trainer: spoil(trainer.generate_rows(rows)))
    with pytest.raises(ValueError, match=rf"Method 'mine', seam 'rollout': .*{told}"):
        train(build, method)


def test_two_rollout_functions_are_refused(build: Build) -> None:
    method = Method("mine", rollout=lambda ctx, rows, trainer: trainer.generate_rows(rows))
    with pytest.raises(ValueError, match="Method 'mine' draws rollouts itself: rollout_func cannot be given too"):
        build(method=method, named={"rollout_func": lambda prompts, trainer: {}})


def test_a_method_that_cannot_be_run_is_refused() -> None:
    with pytest.raises(ValueError, match="needs can hold 'logps', not"):
        Method("mine", needs=frozenset({"logits"}))
    with pytest.raises(TypeError, match="Method 'mine', seam 'rollout': expected something to call, got int"):
        Method("mine", rollout=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Method 'mine', seam 'divergence': it needs trainer='distill'"):
        Method("mine", divergence=length_reward)


def test_a_hint_that_leaves_no_room_is_an_error(build: Build) -> None:
    method = Method("long", rollout=lambda ctx, rows, trainer: hinted([{"prompt": "1" * 60}] * 32, trainer))
    with pytest.raises(ValueError, match="A prompt of 63 tokens does not fit: 56 are left"):
        train(build, method)


def test_a_completion_that_trl_masks_as_a_whole_has_ratio_1(build: Build) -> None:
    """Truncated completions count as empty; a log-prob of -200 on one side of the ratio would be infinite times 0."""

    def rollout(ctx: Context, rows: Any, trainer: Any) -> Any:
        got = trainer.generate_rows(rows)
        got[0] |= {"completion_ids": [13] * 8, "old_logps": [-200.0] * 8}  # no digit: a negative advantage
        return got

    named = {"skip_zero_advantage": False}
    trainer = train(build, Method("cut", rollout=rollout), mask_truncated_completions=True, named=named)
    loss, norm = history(trainer, "loss", "grad_norm")[0]
    assert loss != 0 and norm > 0  # a loss that is NaN is logged as 0

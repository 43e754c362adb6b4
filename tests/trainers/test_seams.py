"""The seams: what hooks see, what they may give back, and errors that name method, seam and shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlkit.method import Context, Method
from tests.tiny import Build, half_reward, history, length_reward, tiny_data, tiny_tokenizer


def _run(build: Build, method: Method = None, **options: Any) -> Any:
    trainer = build(method=method or "grpo", **{"max_steps": 1, **options})
    trainer.train()
    return trainer


def test_what_an_advantage_sees(build: Build) -> None:
    seen = []

    def reward(completions: Sequence[Any], id: Any, **columns: Any) -> Any:
        return [None if i == 3 else float(i) for i in id]

    def advantage(ctx: Context) -> Any:
        seen.append(ctx)
        return torch.nan_to_num(ctx.rewards)

    method = Method("spy", advantage=advantage, options={"alpha": 2})
    trainer = _run(
        build, method.with_options(alpha=3), reward=[reward, length_reward], reward_weights=[1.0, 0.5], seed=4
    )
    (ctx,) = seen
    assert (ctx.step, ctx.max_steps, ctx.seed, dict(ctx.options)) == (0, 1, 4, {"alpha": 3})
    assert ctx.rewards.shape == ctx.valid.shape == ctx.lengths.shape == (8, 4)
    assert ctx.rewards_per_func.shape == (8, 4, 2)
    ids = torch.tensor(ctx.columns["id"]).view(8, 4)
    assert (ids == ids[:, :1]).all() and len(set(ids[:, 0].tolist())) == 8  # side by side, one prompt a group
    lengths = torch.tensor(length_reward(ctx.texts)).view(8, 4)
    scored = torch.where(ids == 3, 0, ids)  # one of two functions passes: the other one counts
    assert torch.allclose(ctx.rewards, scored + 0.5 * lengths)
    assert [len(c) for c in ctx.completion_ids] == ctx.lengths.flatten().tolist()
    shown = list(trainer._logs["advantages"])
    assert shown == pytest.approx(ctx.rewards.flatten().tolist())  # the table of completions shows what was trained


@pytest.mark.parametrize(
    ("give", "told"),
    [
        (lambda r: r[:, 0], r"\(N, G\) = \(8, 4\) or \(B, T\) = \(32, 8\), got \(8,\)"),
        (lambda r: r.tolist(), r"got list"),
        (lambda r: r / 0, r"32 of 32 advantages are NaN or infinite"),
        (lambda r: (r, torch.ones(8, 4)), r"keep as a bool tensor of shape \(N, G\) = \(8, 4\), got torch.float32"),
        (lambda r: (r, torch.ones(8, 3, dtype=torch.bool)), r"got torch.bool \(8, 3\)"),
        (lambda r: (r, r != r), r"keep removes every rollout"),
    ],
)
def test_an_advantage_of_the_wrong_kind_is_an_error(build: Build, give: Any, told: str) -> None:
    with pytest.raises(ValueError, match=rf"Method 'mine', seam 'advantage': .*{told}"):
        _run(build, Method("mine", advantage=lambda ctx: give(ctx.rewards)))


@pytest.mark.parametrize(
    ("give", "told"),
    [
        (lambda w: w[:, 0], r"shape \(B, T\) = \(32, 8\), got \(32,\)"),
        (lambda w: -w, r"smallest weight is -1"),
        (lambda w: w * math.nan, r"weights are NaN or infinite"),
        (lambda w: 1.0, r"got float"),
    ],
)
def test_a_token_weight_of_the_wrong_kind_is_an_error(build: Build, give: Any, told: str) -> None:
    with pytest.raises(ValueError, match=rf"Method 'mine', seam 'token_weight': .*{told}"):
        _run(build, Method("mine", token_weight=lambda ctx: give(torch.ones_like(ctx.logps))))


def test_token_advantages_equal_row_advantages_times_token_weights(build: Build) -> None:
    """(B, T) advantages that are position-dependent, and the same as a token weight on (N, G) advantages."""
    ramp = torch.arange(1.0, 9.0) / 8

    def by_token(ctx: Context) -> Any:
        advantages = ctx.rewards - ctx.rewards.mean(1, keepdim=True)
        return advantages.reshape(-1, 1) * ramp[: int(ctx.lengths.max())]

    plain = lambda ctx: ctx.rewards - ctx.rewards.mean(1, keepdim=True)  # noqa: E731
    weight = lambda ctx: ramp[: ctx.logps.size(1)].expand_as(ctx.logps)  # noqa: E731
    for parts in (1, 4):
        config = {"per_device_train_batch_size": 32 // parts, "gradient_accumulation_steps": parts, "max_steps": 2}
        a = _run(build, Method("a", advantage=by_token), **config)
        b = _run(build, Method("b", advantage=plain, token_weight=weight), **config)
        for left, right in zip(history(a, "loss", "grad_norm"), history(b, "loss", "grad_norm"), strict=True):
            assert left == pytest.approx(right, rel=1e-6, abs=1e-6)
            assert right[1] > 0


def test_a_weight_leaves_the_denominators(build: Build) -> None:
    """All weights halved: half the loss, half the gradient."""
    half = Method("half", token_weight=lambda ctx: torch.full_like(ctx.logps, 0.5))
    for loss in ("dapo", "grpo", "bnpo"):
        a, b = (history(_run(build, m, loss_type=loss), "grad_norm")[0][0] for m in (None, half))
        assert b == pytest.approx(a / 2, rel=1e-5)
    assert history(_run(build, Method("none", token_weight=lambda ctx: ctx.logps * 0)), "grad_norm") == [(0,)]


def test_a_weight_sees_the_micro_batch(build: Build) -> None:
    seen = []

    def weight(ctx: Context) -> Any:
        seen.append(ctx)
        return ctx.mask.float()

    _run(build, Method("w", token_weight=weight), per_device_train_batch_size=8, gradient_accumulation_steps=4)
    assert len(seen) == 4
    for ctx in seen:
        assert ctx.logps.shape == ctx.old_logps.shape == ctx.entropies.shape == ctx.advantages.shape == ctx.mask.shape
        assert not ctx.logps.requires_grad
        assert ((ctx.logps < 0) == ctx.mask.bool()).all() and (ctx.entropies[ctx.mask.bool()] > 0).all()
        assert "completion_ids" in ctx.extras


def test_top_entropy_tokens_as_a_weight_equal_trls(build: Build) -> None:
    def top_fifth(ctx: Context) -> Any:
        threshold = torch.quantile(ctx.entropies[ctx.mask.bool()], 0.8)
        return (ctx.entropies >= threshold).float()

    a = _run(build, Method("top", token_weight=top_fifth), max_steps=3)
    b = _run(build, stock=True, top_entropy_quantile=0.2, max_steps=3)
    assert history(a, "loss", "grad_norm") == history(b, "loss", "grad_norm")


def test_data_may_roll_out_with_the_starting_policy_and_leaves_no_trace(build: Build) -> None:
    collected = []

    def reference(dataset: Any, trainer: Any) -> Any:
        rows = [dict(row) for row in dataset for _ in range(2)]
        collected.extend(trainer.collect(rows))
        rewards = torch.tensor([x["reward"] for x in collected]).view(-1, 2).mean(1)
        return dataset.add_column("reference", rewards.tolist())

    def advantage(ctx: Context) -> Any:
        assert set(ctx.columns) >= {"prompt", "gold", "id", "reference"}
        return ctx.rewards - ctx.rewards.mean(1, keepdim=True)

    plain = _run(build, Method("a", advantage=advantage and (lambda c: c.rewards - c.rewards.mean(1, keepdim=True))))
    trainer = build(method=Method("b", data=reference, advantage=advantage), max_steps=1)
    charged = sum(len(x["completion_ids"]) for x in collected)
    assert len(collected) == 32 and trainer.generated_tokens == charged > 0
    assert collected[0]["reward"] == pytest.approx(length_reward([collected[0]["completion"]])[0])
    trainer.train()
    names = ("loss", "grad_norm", "reward", "num_tokens")
    assert history(trainer, *names) == history(plain, *names)  # the same rollouts: random state was put back
    assert history(trainer, "generated_tokens")[0][0] == charged + history(plain, "generated_tokens")[0][0]


def test_a_data_hook_that_gives_something_else_is_an_error(build: Build) -> None:
    with pytest.raises(ValueError, match=r"Method 'd', seam 'data': expected a datasets.Dataset, got list"):
        build(method=Method("d", data=lambda dataset, trainer: []))
    with pytest.raises(ValueError, match=r"train set has 2 prompts and one generation batch takes 8"):
        build(method=Method("d", data=lambda dataset, trainer: dataset.select(range(2))))


def test_callbacks_are_made_with_the_trainer(build: Build) -> None:
    from transformers import TrainerCallback

    class Halve(TrainerCallback):
        def __init__(self, trainer: Any) -> None:
            self.trainer = trainer

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **about: Any) -> None:
            for group in self.trainer.optimizer.param_groups:
                group["lr"] = 0.0

    trainer = build(method=Method("still", callbacks=(Halve,)), max_steps=2)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_a_methods_own_reward_is_used_when_no_other_is_given(build: Build) -> None:
    trainer = _run(build, Method("own", reward=half_reward), reward=None)
    assert trainer.reward_func_names == ["half_reward"]
    trainer = _run(build, Method("own", reward=half_reward))
    assert trainer.reward_func_names == ["length_reward"]


def test_chats_are_trained_graded_and_collected(build: Build) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    prompts = [[{"role": "user", "content": prompt}] for prompt in tiny_data()["prompt"]]
    data = tiny_data().remove_columns("prompt").add_column("prompt", prompts)
    seen = []

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        seen.append((prompts[0], completions[0]))
        return length_reward([completion[0]["content"] for completion in completions])

    trainer = build(data=data, reward=reward, named={"processing_class": tokenizer}, max_steps=1)
    collected = trainer.collect([data[i] for i in range(4)])
    assert [x["reward"] for x in collected] == pytest.approx(length_reward([x["completion"] for x in collected]))
    trainer.train()
    assert history(trainer, "grad_norm")[0][0] > 0
    for prompt, completion in seen:
        assert prompt[0]["role"] == "user" and completion[0]["role"] == "assistant"


class Novelty:
    """A reward with memory: a completion counts less each time it is seen."""

    __name__ = "novelty"

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        for text in completions:
            self.seen[text] = self.seen.get(text, 0) + 1
        return [1 / self.seen[text] for text in completions]

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def test_a_reward_with_memory_is_the_trainers_own_and_resumes(build: Build, tmp_path: Path) -> None:
    memory = Novelty()
    method = Method("novel", reward=memory, state=(memory,))
    for given in (None, memory):
        first = build(method=method, reward=given, max_steps=4, save_strategy="steps", save_steps=2)
        first.train()
        assert first.method.state[0] is first.reward_funcs[0].func is first.method.reward is not memory
        second = build(method=method, reward=given, max_steps=4)
        second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
        assert history(second, "loss", "reward") == history(first, "loss", "reward")
        assert first.reward_funcs[0].func.seen == second.reward_funcs[0].func.seen and not memory.seen


def test_hooks_do_not_run_in_evaluation(build: Build) -> None:
    calls = []

    def count(ctx: Context) -> Any:
        calls.append(1)
        return ctx.rewards, ctx.rewards == ctx.rewards

    trainer = build(
        method=Method("spy", advantage=count, token_weight=lambda ctx: calls.append(1)),
        named={"eval_dataset": tiny_data(8)},
    )
    assert trainer.evaluate()["eval_reward"] > 0
    assert not calls and trainer.generated_tokens == 0


def test_grade_and_generate_leave_the_trainer_as_it_was(build: Build) -> None:
    def noting(completions: Sequence[Any], log_metric: Any, log_extra: Any, **columns: Any) -> list[float]:
        log_metric("seen", 1.0)
        log_extra("text", list(completions))
        return length_reward(completions)

    trainer = build(max_steps=1, reward=noting)
    rows = [trainer.train_dataset[i] for i in range(3)]
    before = torch.get_rng_state()
    with trainer.aside():
        got = trainer.generate_rows(rows)
    assert torch.equal(before, torch.get_rng_state())
    rewards = trainer.grade(rows, [g["completion_ids"] for g in got])
    texts = trainer.processing_class.batch_decode([g["completion_ids"] for g in got], skip_special_tokens=True)
    assert rewards == pytest.approx(length_reward(texts))
    assert got[0]["prompt_ids"] == trainer.tokenize([rows[0]["prompt"]])[0]
    assert not trainer._metrics["train"] and trainer.generated_tokens == 0
    assert not trainer._pending_metrics and not trainer._pending_extra_logs

"""The seams `surrogate` and `pooled`: TRL restated, objectives worked out by hand, statistics over rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rlkit.method import Context, Method
from tests.tiny import Build, half_reward, history, tiny_model, tiny_tokenizer

STALE = {"per_device_train_batch_size": 8, "steps_per_generation": 4, "learning_rate": 1e-2, "max_steps": 4}
ACCUMULATED = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "max_steps": 2}
TWICE = {"num_iterations": 2, "optim": "sgd", "learning_rate": 0.5, "max_steps": 2}  # Adam would amplify the 7th digit
NAMES = ("loss", "grad_norm", "reward", "num_tokens")


def ppo(ctx: Context) -> Tensor:
    ratio = (ctx.logps - ctx.old_logps).exp()
    return (ratio * ctx.advantages).minimum(ratio.clamp(0.8, 1.2) * ctx.advantages)


def gspo(ctx: Context) -> Tensor:
    mean = ((ctx.logps - ctx.old_logps) * ctx.mask).sum(1, keepdim=True) / ctx.mask.sum(1, keepdim=True).clamp(min=1)
    ratio = mean.exp().expand_as(ctx.logps)
    return (ratio * ctx.advantages).minimum(ratio.clamp(0.8, 1.2) * ctx.advantages)


def train(build: Build, method: Any = None, **options: Any) -> Any:
    how = {"stock": True} if method is None else {"method": method}
    trainer = build(**{"reward": half_reward, **how, **options})
    trainer.train()
    return trainer


def same(a: Any, b: Any, *names: str, tolerance: float = 1e-6) -> None:
    for ours, theirs in zip(history(a, *(names or NAMES)), history(b, *(names or NAMES)), strict=True):
        assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)


LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")
CONFIGS = {"stale": STALE, "accumulated": ACCUMULATED, "two iterations": TWICE}
QUICK = [(loss, "stale") for loss in LOSSES] + [("dapo", "accumulated"), ("dapo", "two iterations")]
REST = [pytest.param(loss, c, marks=pytest.mark.slow) for loss in LOSSES[:3] for c in ("accumulated", "two iterations")]


@pytest.mark.parametrize(("loss", "name"), [*QUICK, *REST])
def test_the_clip_restated_is_trl_in_loss_and_gradient(build: Build, loss: str, name: str) -> None:
    config = CONFIGS[name]
    stock = train(build, loss_type=loss, **config)
    own = train(build, Method("ppo", surrogate=ppo), loss_type=loss, **config)
    pooled = train(build, Method("ppo", surrogate=ppo, pooled=True), loss_type=loss, **config)
    same(own, stock)
    same(pooled, stock)
    assert sum(x for (x,) in history(own, "rows_left_out")) == 0 < sum(x for (x,) in history(pooled, "rows_left_out"))
    clipped = sum(x for (x,) in history(stock, "clip_ratio/region_mean"))
    assert clipped > 0.01 or name == "accumulated"
    assert not any("clip_ratio" in name for line in own.state.log_history for name in line)


def test_one_ratio_a_completion_restated_is_trls(build: Build) -> None:
    stock = train(build, loss_type="grpo", importance_sampling_level="sequence", **STALE)
    same(train(build, Method("gspo", surrogate=gspo), loss_type="grpo", **STALE), stock)


def test_an_objective_of_ones_own_by_hand(build: Build) -> None:
    """sum of p(y) A over tokens: the loss is its mean, the gradient p A grad log p."""
    rows: list[Any] = []

    def advantage(ctx: Context) -> Tensor:
        A = ctx.rewards - ctx.rewards.mean(1, keepdim=True)
        rows.extend(zip(ctx.columns["prompt"], ctx.completion_ids, A.flatten().tolist(), strict=True))
        return A

    method = Method("p", advantage=advantage, surrogate=lambda ctx: ctx.logps.exp() * ctx.advantages)
    trainer = train(build, method, max_steps=1, max_grad_norm=1e9)
    model, tokenizer, total = tiny_model(), tiny_tokenizer(), torch.zeros(())
    for prompt, completion, A in rows:
        ids = torch.tensor([tokenizer(prompt)["input_ids"] + list(completion)])
        p = model(ids).logits[0, :-1].softmax(-1)[-len(completion) :].gather(1, torch.tensor(completion)[:, None])
        total = total - A * p.sum() / sum(len(c) for _, c, _ in rows)
    total.backward()
    norm = math.sqrt(sum(p.grad.pow(2).sum().item() for p in model.parameters()))
    assert history(trainer, "loss", "grad_norm")[0] == pytest.approx((total.item(), norm), rel=1e-5)


def test_a_weight_comes_before_the_surrogate(build: Build) -> None:
    half = Method("half", token_weight=lambda ctx: ctx.mask * 0.5, surrogate=ppo)
    a, b = (history(train(build, m, max_steps=1), "grad_norm")[0][0] for m in (half, Method("ppo", surrogate=ppo)))
    assert a == pytest.approx(b / 2, rel=1e-5) and b > 0


def relative(ctx: Context) -> Tensor:
    """|A| times entropy, against its mean over the tokens of all rows."""
    size = ctx.advantages.abs() * ctx.entropies
    return size / size[ctx.mask.bool()].mean().clamp(min=1e-6)


def strongest(ctx: Context) -> Tensor:
    """Tokens whose |A| is above the mean of all rows, at a ratio that drifts."""
    size = ctx.advantages.abs()
    return (ctx.logps - ctx.old_logps).exp() * ctx.advantages * (size >= size[ctx.mask.bool()].mean())


@pytest.mark.parametrize("seam", [{"token_weight": relative}, {"surrogate": strongest}], ids=["weight", "surrogate"])
def test_a_pooled_statistic_does_not_change_with_accumulation_or_rows_left_out(build: Build, seam: Any) -> None:
    pooled, plain = (Method("pooled", **seam, pooled=pooled) for pooled in (True, False))
    whole = train(build, pooled, max_steps=2)
    parts = train(build, pooled, **ACCUMULATED)
    same(parts, whole)
    same(train(build, pooled, **ACCUMULATED, named={"skip_zero_advantage": False}), whole)
    same(train(build, plain, max_steps=2), whole)
    assert history(parts, "rows_left_out")[0][0] > 0.3
    by_parts = history(train(build, plain, **ACCUMULATED), "grad_norm")[0][0]
    assert abs(by_parts - history(whole, "grad_norm")[0][0]) > 1e-3


def test_a_pooled_hook_sees_every_row_of_an_optimiser_step_once(build: Build) -> None:
    seen: list[Context] = []

    def weight(ctx: Context) -> Tensor:
        seen.append(ctx)
        return ctx.mask.float()

    def advantage(ctx: Context) -> Any:
        keep = torch.ones_like(ctx.valid)
        keep[:, 0] = False
        return None, keep

    config = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "steps_per_generation": 8}
    method = Method("spy", advantage=advantage, token_weight=weight, pooled=True)
    train(build, method, max_steps=4, **config)
    assert [(ctx.step, len(ctx.mask)) for ctx in seen] == [(0, 16), (1, 16), (2, 16), (3, 16)]
    for ctx in seen:
        assert (ctx.mask.sum(1) > 0).tolist() == ctx.extras["counted"].tolist()
        assert "objective" not in ctx.extras
    assert sum(int(ctx.extras["counted"].sum()) for ctx in seen[:2]) == 24


BAD = [
    (lambda ctx: ctx.logps[:, 0], r"shape \(B, T\) = \(32, 8\), got \(32,\)"),
    (lambda ctx: 1.0, "got float"),
    (lambda ctx: ctx.advantages, "does not depend on ctx.logps"),
    (lambda ctx: torch.ones_like(ctx.logps, requires_grad=True), "does not depend on ctx.logps"),
    (lambda ctx: (ctx.logps * 1e6).exp().log(), r"is NaN or infinite at \d+ of \d+ tokens"),
]


@pytest.mark.parametrize(("surrogate", "told"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("pooled", [False, True])
def test_an_objective_of_the_wrong_kind_is_an_error(build: Build, surrogate: Any, told: str, pooled: bool) -> None:
    with pytest.raises(ValueError, match=rf"Method 'mine', seam 'surrogate': .*{told}"):
        train(build, Method("mine", surrogate=surrogate, pooled=pooled), max_steps=1)


REFUSED = [
    ({"loss_type": "sapo"}, "needs loss_type one of grpo, bnpo, dr_grpo, dapo"),
    ({"loss_type": "cispo", "epsilon_high": 5.0}, "needs loss_type one of"),
    ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, "needs importance_sampling_level='token'"),
    ({"off_policy_mask_threshold": 0.1}, "needs no off_policy_mask_threshold"),
    ({"delta": 1.5}, "needs no delta"),
]


@pytest.mark.parametrize(("config", "told"), REFUSED, ids=str)
def test_settings_that_a_surrogate_would_make_void_are_refused(build: Build, config: Any, told: str) -> None:
    with pytest.raises(ValueError, match=rf"Method 'mine', seam 'surrogate': .* {told}"):
        build(method=Method("mine", surrogate=ppo), **config)


def test_an_optimiser_step_over_two_generation_batches_cannot_be_pooled(build: Build) -> None:
    config = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "steps_per_generation": 1}
    with pytest.raises(
        ValueError, match=r"Method 'mine' is pooled: an optimiser step of 4 micro-batches .* batch of 1"
    ):
        build(method=Method("mine", token_weight=relative, pooled=True), **config)

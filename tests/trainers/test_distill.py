"""`DistillTrainer` against stock TRL and against itself: weights, accumulation, padding, and what is logged."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlkit.method import Context, Method
from rlkit.methods import tip
from tests import tiny
from tests.tiny import Build, history

NUMBERS = ("loss", "grad_norm", "entropy", "num_tokens")
SPLITS = [(8, 1), (4, 2)]
split = pytest.mark.parametrize("size", SPLITS, ids=lambda s: f"{s[0]}x{s[1]}")


def ones(ctx: Context) -> torch.Tensor:
    """The same weight everywhere; what it is does not count."""
    return torch.full_like(ctx.mask, 0.3, dtype=torch.float32)


def high(ctx: Context) -> torch.Tensor:
    """Compares tokens with all others that it sees."""
    assert ctx.entropies is not None and ctx.mask is not None
    return (ctx.entropies >= ctx.entropies[ctx.mask > 0].median()).float()


def by_place(ctx: Context) -> torch.Tensor:
    """Looks at each token alone; not 0 or 1."""
    return 0.05 + (ctx.extras["positions"] % 3).float()


SAME = {
    "nothing": Method("nothing", trainer="distill"),
    "one": Method("one", trainer="distill", token_weight=ones),
    "pooled-one": Method("pooled", trainer="distill", token_weight=ones, pooled=True),
}


def batch(size: tuple[int, int]) -> dict[str, int]:
    return {"per_device_train_batch_size": size[0], "gradient_accumulation_steps": size[1]}


def trained(trainer: Any, *names: str) -> Any:
    trainer.train()
    return history(trainer, *(names or NUMBERS))


def close(found: Any, expected: Any, rel: float = 1e-5) -> None:
    """Every number of every step is the same to five digits."""
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=rel)


@split
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0], ids=str)
@pytest.mark.parametrize("weight", sorted(SAME))
def test_weight_one_is_stock_trl(distil: Build, weight: str, beta: float, size: tuple[int, int]) -> None:
    stock = trained(distil(stock=True, beta=beta, **batch(size)))  # it seeds when it is built, ours when it trains
    close(trained(distil(method=SAME[weight], beta=beta, **batch(size))), stock)


def test_opd_is_stock_at_a_temperature(distil: Build) -> None:
    stock = trained(distil(stock=True, temperature=0.7))
    close(trained(distil(method="opd", temperature=0.7)), stock)


@pytest.mark.parametrize("weight", [high, by_place], ids=lambda f: f.__name__)
def test_accumulation_changes_nothing(distil: Build, weight: Any) -> None:
    method = Method("mine", trainer="distill", token_weight=weight, pooled=weight is high)
    names = ("loss", "grad_norm", "kept_share", "trained_tokens", "generated_tokens")
    runs = [trained(distil(method=method, **batch(size)), *names) for size in ((8, 1), (4, 2), (2, 4))]
    assert 0 < runs[0][0][2] <= 1
    close(runs[1], runs[0])
    close(runs[2], runs[0])


def test_the_window_counts_not_the_micro_batch(distil: Build) -> None:
    """Weights of 0 in one micro-batch: the other's tokens still get the mean over the kept ones, not half of it."""

    def first_rows(ctx: Context) -> torch.Tensor:
        return (ctx.extras["group"] < 4).float()[:, None].expand(ctx.mask.shape)

    method = Method("mine", trainer="distill", token_weight=first_rows)
    runs = [trained(distil(method=method, **batch(size)), "loss", "grad_norm") for size in ((8, 1), (1, 8))]
    close(runs[1], runs[0])


@pytest.mark.parametrize("name", ["opd", "tip", "tip_q3", "tip_entropy_sampling"])
def test_added_padding_changes_nothing(distil: Build, name: str) -> None:
    plain, padded = (trained(distil(method=name, pad_to_multiple_of=to, max_steps=2)) for to in (None, 16))
    close(padded, plain, rel=2e-5)


@pytest.mark.parametrize("name", ["tip", "tip_q3", "tip_divergence", "opd", "opd_forward", "opd_topk", "opsdc"])
def test_a_teacher_equal_to_the_student_gives_loss_0(distil: Build, name: str) -> None:
    teacher = None if name == "opsdc" else tiny.tiny_model()
    method = name if name != "opsdc" else Method("same", trainer="distill", teacher="self")
    trainer = distil(method=method, teacher=teacher, max_steps=1)
    (loss, norm), *_ = trained(trainer, "loss", "grad_norm")
    assert abs(loss) < 1e-6
    assert norm < 1e-4


def test_the_loss_is_the_mean_over_kept_tokens_worked_out_by_hand(distil: Build) -> None:
    """Dense, from the models' own logits, on the rollouts of the step."""
    kept: dict[str, Any] = {}

    def remember(ctx: Context) -> torch.Tensor:
        weight = tip.top_per_rollout(ctx.divergence, ctx.mask, 0.5)
        kept.update(weight=weight, **{k: v for k, v in ctx.extras.items() if isinstance(v, torch.Tensor)}, ctx=ctx)
        return weight

    trainer = distil(method=Method("mine", trainer="distill", token_weight=remember), max_steps=1)
    student, teacher = tiny.tiny_model(), tiny.tiny_model(seed=7)
    (loss, norm), *_ = trained(trainer, "loss", "grad_norm")
    ids = torch.cat([kept["prompt_ids"], kept["completion_ids"]], 1)
    mask = torch.cat([kept["prompt_mask"], kept["completion_mask"]], 1)
    T = kept["completion_ids"].size(1)
    log_p, log_q = (m(ids, attention_mask=mask).logits[:, -T - 1 : -1].log_softmax(-1) for m in (student, teacher))
    log_q = log_q.detach()
    dense = (log_p.exp() * (log_p - log_q)).sum(-1)
    by_hand = (dense * kept["weight"]).sum() / kept["weight"].sum()
    by_hand.backward()
    assert loss == pytest.approx(by_hand.item(), rel=1e-5)
    grads = torch.stack([p.grad.norm() for p in student.parameters()])
    assert norm == pytest.approx(grads.norm().item(), rel=1e-4)
    ctx, inside = kept["ctx"], kept["completion_mask"] > 0
    assert torch.allclose(ctx.divergence[inside], dense.detach()[inside], atol=1e-5)
    assert torch.allclose(ctx.entropies[inside], -(log_p.exp() * log_p).sum(-1).detach()[inside], atol=1e-5)
    tokens = kept["completion_ids"][..., None]
    assert torch.allclose(ctx.logps[inside], log_p.gather(2, tokens)[..., 0].detach()[inside], atol=1e-5)
    assert torch.allclose(kept["teacher_logps"][inside], log_q.gather(2, tokens)[..., 0][inside], atol=1e-5)
    assert not ctx.divergence[~inside].any()


def test_forward_kl_is_there_when_asked_for(distil: Build) -> None:
    seen: list[Context] = []

    def look(ctx: Context) -> torch.Tensor:
        seen.append(ctx)
        return torch.ones_like(ctx.entropies)

    for needs in ((), ("forward",)):
        method = Method("mine", trainer="distill", token_weight=look, needs=frozenset(needs))
        trainer = distil(method=method, max_steps=1)
        trainer.train()
        assert ("forward_divergence" in trainer.state.log_history[0]) == bool(needs)
    without, with_it = seen
    assert without.forward is None and with_it.forward is not None
    assert torch.equal(without.divergence, with_it.divergence)
    assert not torch.allclose(with_it.forward, with_it.divergence)


def test_what_is_logged(distil: Build) -> None:
    trainer = distil(method=Method("mine", trainer="distill", token_weight=high, pooled=True), max_steps=2)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    for line in lines:
        assert line["loss"] == pytest.approx(line["divergence/kept"], rel=1e-5)
        assert line["kept_share"] == pytest.approx(0.5, abs=0.05)
        assert 0 < line["teacher_entropy"] < 3.1
    assert lines[1]["trained_tokens"] == trainer.trained_tokens < lines[1]["generated_tokens"]
    assert lines[1]["generated_tokens"] > lines[0]["generated_tokens"]


def test_the_teacher_learns_nothing_and_is_evaluated(distil: Build) -> None:
    teacher = tiny.tiny_model(seed=7)
    before = [p.clone() for p in teacher.parameters()]
    trainer = distil(method="opd", teacher=teacher)
    trainer.train()
    assert not trainer.teacher_model.training and trainer.model.training
    assert all(p.grad is None for p in teacher.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, teacher.parameters(), strict=True))


def test_evaluation_is_stock(distil: Build) -> None:
    scores = []
    for stock in (True, False):
        own = {} if stock else {"method": "tip"}
        trainer = distil(stock=stock, max_steps=1, named={"eval_dataset": tiny.tiny_data(8)}, **own)
        torch.manual_seed(0)
        scores.append(trainer.evaluate()["eval_loss"])
        assert not trainer.state.log_history or "eval_kept_share" not in trainer.state.log_history[-1]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


@pytest.mark.parametrize("beta", [0.0, 1.0], ids=str)
def test_in_bfloat16_it_is_stock_too(distil: Build, beta: float) -> None:
    """Both multiply in bfloat16 and compare in 32 bits; the gradient is rounded in other places."""
    stock = trained(distil(stock=True, beta=beta, bf16=True, max_steps=1), "loss", "entropy", "grad_norm")
    ours = trained(distil(method="opd", beta=beta, bf16=True, max_steps=1), "loss", "entropy", "grad_norm")
    close([line[:2] for line in ours], [line[:2] for line in stock])
    close([line[2:] for line in ours], [line[2:] for line in stock], rel=1e-2)

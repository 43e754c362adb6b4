"""The seam `batch`: rows with frozen advantages join or leave, and the objective is that of the rows that count."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlkit.method import Context, Method
from rlkit.methods.mc_grpo import median_pivot
from rlkit.methods.replay import OPTIONS, Replay
from tests.tiny import Build, half_reward, history, length_reward
from tests.trainers.by_hand import loss_and_gradient


def train(build: Build, method: Any, **options: Any) -> Any:
    trainer = build(method=method, **{"max_steps": 1, **options})
    trainer.train()
    return trainer


def rows_of(batch: Any, index: Any) -> Any:
    rows = len(batch["counted"])
    return {k: v[index] if isinstance(v, torch.Tensor) and v.ndim and len(v) == rows else v for k, v in batch.items()}


def centered(record: Any) -> Any:
    """Advantages by hand, with a record of the rows."""

    def advantage(ctx: Context) -> Any:
        A = ctx.rewards - ctx.rewards.mean(1, keepdim=True)
        record[:] = zip(ctx.columns["prompt"], ctx.completion_ids, A.flatten().tolist(), [True] * 32, strict=True)
        return A

    return advantage


def test_a_batch_given_back_is_trl(build: Build) -> None:
    names = ("loss", "grad_norm", "reward", "rows_left_out", "trained_tokens")
    runs = [train(build, m, reward=half_reward, max_steps=3) for m in ("grpo", Method("same", batch=lambda t, b: b))]
    assert history(runs[0], *names) == history(runs[1], *names)


CHANGES = {
    "every second leaves": list(range(0, 32, 2)),
    "all twice": [*range(32), *range(32)],
    "first again": [*range(32), 0, 0, 0, 0],
}
QUICK = [("grpo", 4, "every second leaves"), ("dapo", 4, "first again"), ("bnpo", 1, "all twice")]
EVERY = [(loss, parts, c) for loss in ("grpo", "dr_grpo", "dapo") for parts in (1, 4) for c in CHANGES]
REST = [pytest.param(*case, marks=pytest.mark.slow) for case in EVERY if case not in QUICK]


@pytest.mark.parametrize(("loss", "parts", "change"), [*QUICK, *REST])
def test_loss_and_gradient_are_those_of_the_rows_that_are_given_back(
    build: Build, loss: str, parts: int, change: str
) -> None:
    record: list[Any] = []
    index = CHANGES[change]
    method = Method("rows", advantage=centered(record), batch=lambda trainer, batch: rows_of(batch, index))
    config = {"per_device_train_batch_size": 32 // parts, "gradient_accumulation_steps": parts}
    trainer = train(build, method, loss_type=loss, max_grad_norm=1e9, **config)
    rows = [record[i] for i in index]
    expected = loss_and_gradient(rows, loss, 8)
    assert history(trainer, "loss", "grad_norm")[0] == pytest.approx(expected, rel=5e-6, abs=1e-6)
    assert history(trainer, "trained_tokens")[0][0] == sum(len(c) for _, c, a, _ in rows if a)


def test_what_a_batch_adds_reaches_the_loss(build: Build) -> None:
    seen: list[Context] = []

    def weight(ctx: Context) -> Any:
        seen.append(ctx)
        return ctx.mask.float()

    def batch(trainer: Any, batch: Any) -> Any:
        return {"first": torch.tensor(0), **batch, "age": torch.arange(32)}  # a 0-d tensor in front stops TRL

    train(build, Method("age", batch=batch, token_weight=weight), per_device_train_batch_size=8, steps_per_generation=4)
    assert set(seen[0].extras["age"].tolist()) <= set(range(32)) and seen[0].extras["age"].shape == (8,)


def _set(**changes: Any) -> Any:
    return lambda batch: {**batch, **{k: f(batch) for k, f in changes.items()}}


BAD = [
    (lambda b: None, "expected the batch as a dict with prompt_ids"),
    (lambda b: {k: v for k, v in b.items() if k != "counted"}, "'counted' is missing"),
    (lambda b: rows_of(b, []), "the batch is empty; at least 4 rows have to stay"),
    (lambda b: rows_of(b, list(range(30))), r"30 rows do not divide .*=4 .* Nearest: 28 or 32 rows"),
    (_set(advantages=lambda b: b["advantages"][:-1]), "'advantages' has 31 rows, and completion_ids has 32"),
    (
        _set(advantages=lambda b: b["completion_mask"][:, :2]),
        r"'advantages' of shape \(32,\) or \(32, \d+\), got \(32, 2\)",
    ),
    (_set(advantages=lambda b: b["advantages"] / 0), r"values of 'advantages' are NaN or infinite"),
    (_set(completion_mask=lambda b: b["prompt_mask"]), r"'completion_mask' of shape \(32, \d+\)"),
    (_set(counted=lambda b: b["counted"] & False), "no row of the batch counts"),
]


@pytest.mark.parametrize(("spoil", "told"), BAD, ids=range(len(BAD)))
def test_a_batch_of_the_wrong_kind_is_an_error(build: Build, spoil: Any, told: str) -> None:
    config = {"per_device_train_batch_size": 8, "steps_per_generation": 4}
    with pytest.raises(ValueError, match=rf"Method 'mine', seam 'batch': .*{told}"):
        train(build, Method("mine", batch=lambda trainer, batch: spoil(batch)), **config)


FIVES = {"num_generations": 5, "per_device_train_batch_size": 40}


def replay(size: int) -> Method:
    memory = Replay()
    options = {**OPTIONS, "buffer": size}
    return Method("replay", batch=memory.batch, state=(memory,), needs=frozenset({"logps"}), options=options)


def median(record: Any) -> Method:
    def advantage(ctx: Context) -> Any:
        A, keep = median_pivot(ctx.rewards)
        rows = zip(
            ctx.columns["prompt"], ctx.completion_ids, A.flatten().tolist(), keep.flatten().tolist(), strict=True
        )
        record.append(list(rows))
        return A, keep

    return Method("median", advantage=advantage)


def test_replay_with_the_median_baseline_gives_what_its_parts_say(build: Build) -> None:
    """The buffer holds the rows that the median keeps, with its advantages; the loss is the mean over what is drawn."""
    record: list[Any] = []
    both = Method.combine(median(record), replay(64))
    config = {"reward": length_reward, **FIVES, "loss_type": "grpo", "max_grad_norm": 1e9}
    trainer = train(build, both, **config, learning_rate=0.0, max_steps=2)
    drawn: list[Any] = []
    for rows in record:
        assert len(rows) == 40 and sum(not keep for *_, keep in rows) == 8  # a pivot a group
    kept = [row for rows in record for row in rows if row[3]]
    stored = list(trainer.method.state[0].buffer)
    expected = sorted((tuple(c), round(a, 5)) for _, c, a, _ in kept)
    assert sorted((tuple(r["completion_ids"].tolist()), round(float(r["advantages"]), 5)) for r in stored) == expected
    # with everything in the buffer and nothing learnt, the first step is the median baseline's alone
    alone = train(build, median(drawn), **config, learning_rate=0.0)
    found, plain = history(trainer, "loss", "grad_norm")[0], history(alone, "loss", "grad_norm")[0]
    assert found == pytest.approx(plain, rel=5e-6, abs=1e-6)
    assert found == pytest.approx(loss_and_gradient(record[0], "grpo", 8), rel=5e-6, abs=1e-6)


def test_replay_off_is_the_median_baseline_bit_for_bit(build: Build) -> None:
    both = Method.combine(median([]), replay(0))
    names = ("loss", "grad_norm", "rows_left_out", "generated_tokens")
    runs = [train(build, m, max_steps=2, **FIVES) for m in (median([]), both)]
    assert history(runs[0], *names) == history(runs[1], *names)


def test_rollouts_that_wait_are_trained_with_the_ratio_that_they_drifted_to(build: Build) -> None:
    """Batches two updates old: old log-probs are those of the policy that drew, so the ratio is not 1."""
    seen: list[Context] = []
    waiting: list[Any] = []

    def late(trainer: Any, batch: Any) -> Any:
        waiting.append(dict(batch))
        return waiting.pop(0) if len(waiting) > 2 else batch

    def weight(ctx: Context) -> Any:
        seen.append(ctx)
        return ctx.mask.float()

    method = Method("late", batch=late, token_weight=weight, needs=frozenset({"logps"}))
    train(build, method, max_steps=5, learning_rate=1e-2)
    drift = [float(((c.logps - c.old_logps).abs() * c.mask).max()) for c in seen]
    assert max(drift[:2]) < 1e-5 and min(drift[2:]) > 1e-3

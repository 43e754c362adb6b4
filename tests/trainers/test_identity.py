"""A method that sets nothing is stock TRL, with or without rows left out, and so are hooks that restate TRL."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from rlkit.method import Method
from rlkit.methods.grpo import mean_centered, standardized
from tests.tiny import Build, half_reward, history, length_reward

LOSSES = {
    "grpo": {},
    "dr_grpo": {"scale_rewards": "none"},
    "dapo": {},
    "bnpo": {},
    "cispo": {"epsilon_high": 5.0},
}
EVERY = list(itertools.product((1, 4), (1, 4), (1, 2)))  # accumulation, steps_per_generation, num_iterations
QUICK = [(4, 4, 1), (1, 4, 2)]


def _restated(loss: str) -> Any:
    advantage = mean_centered if loss == "dr_grpo" else standardized
    return Method(
        "restated",
        advantage=lambda ctx: (advantage(ctx.rewards), torch.ones_like(ctx.rewards, dtype=torch.bool)),
        token_weight=lambda ctx: torch.ones_like(ctx.logps),
    )


def _check(build: Build, loss: str, accumulation: int, per_generation: int, iterations: int) -> None:
    rows = 32 if (accumulation, per_generation) == (1, 1) else 8
    config = {
        "loss_type": loss,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": per_generation,
        "num_iterations": iterations,
        "per_device_train_batch_size": rows,
        "max_steps": 2 * max(1, per_generation * iterations // accumulation),
        **LOSSES[loss],
    }
    runs = {}
    for name, options in {
        "stock": {"stock": True},
        "rows left out": {"method": "grpo"},
        "hooks": {"method": _restated(loss)},
    }.items():
        trainer = build(reward=half_reward, **config, **options)
        trainer.train()
        runs[name] = trainer
    expected = history(runs["stock"], "loss", "grad_norm", "reward", "num_tokens")
    for name in ("rows left out", "hooks"):
        found = history(runs[name], "loss", "grad_norm", "reward", "num_tokens")
        assert len(found) == len(expected)
        for step, stock in zip(found, expected, strict=True):
            # Rounding of the first update grows in the second one: 1e-6 on some processors, 2e-6 on others.
            assert step == pytest.approx(stock, rel=3e-6, abs=1e-6), name
    assert max(norm for _, norm, *_ in expected) > 0.01
    left_out = [share for (share,) in history(runs["rows left out"], "rows_left_out")]
    assert sum(left_out) / len(left_out) > 0.3
    assert {share for (share,) in history(runs["hooks"], "rows_left_out")} == {0}


@pytest.mark.parametrize("batch", QUICK, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_set_is_stock(build: Build, loss: str, batch: tuple[int, int, int]) -> None:
    _check(build, loss, *batch)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [b for b in EVERY if b not in QUICK], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_set_is_stock_everywhere(build: Build, loss: str, batch: tuple[int, int, int]) -> None:
    _check(build, loss, *batch)


OTHERS = {
    "sequence ratio": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "batch std": {"scale_rewards": "batch"},
    "two-sided clip": {"delta": 1.5},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "sapo": {"loss_type": "sapo"},
    "vespo": {"loss_type": "vespo"},
    "truncated masked": {"mask_truncated_completions": True},
    "bonus": {"entropy_coef": 0.01},
    "top entropy": {"top_entropy_quantile": 0.5},
    "off-policy mask": {"off_policy_mask_threshold": 0.1},
    "two rewards": {"reward": [half_reward, length_reward], "multi_objective_aggregation": "normalize_then_sum"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_options_of_trl_are_stock_too(build: Build, name: str) -> None:
    config = {"reward": half_reward, "steps_per_generation": 2, "per_device_train_batch_size": 16, "max_steps": 4}
    runs = []
    for stock in (True, False):
        trainer = build(stock=stock, **{**config, **OTHERS[name]})
        trainer.train()
        runs.append(history(trainer, "loss", "grad_norm", "reward"))
    for found, expected in zip(*runs, strict=True):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("off", [{"named": {"skip_zero_advantage": False}}, {"beta": 0.1}], ids=["asked", "kl"])
def test_leaving_rows_out_can_be_off(build: Build, tmp_path: Path, off: dict[str, Any]) -> None:
    from transformers import AutoModelForCausalLM

    from tests.tiny import tiny_model

    tiny_model().save_pretrained(tmp_path / "base")
    runs = []
    for stock in (True, False):
        named = {} if stock else off.get("named", {})
        model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
        config = {k: v for k, v in off.items() if k != "named"}
        trainer = build(model=model, stock=stock, reward=half_reward, named=named, **config)
        trainer.train()
        runs.append(history(trainer, "loss", "grad_norm", "entropy", "kl"))
        left_out = history(trainer, "rows_left_out")
    assert runs[0] == runs[1]  # the same rows in the same order: bit for bit
    assert left_out == [(0,)] * 3


def test_a_model_with_absolute_positions_keeps_its_left_padding(build: Build) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    def model() -> Any:
        torch.manual_seed(0)
        shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 20, "initializer_range": 0.2}
        return GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=1, eos_token_id=2, pad_token_id=0))

    runs = []
    for stock in (True, False):
        trainer = build(model=model(), stock=stock, reward=half_reward)
        trainer.train()
        runs.append(history(trainer, "loss", "grad_norm"))
    for found, stock in zip(*runs, strict=True):
        assert found == pytest.approx(stock, rel=1e-6, abs=1e-6)


def test_evaluation_is_stock(build: Build) -> None:
    from tests.tiny import tiny_data

    runs = []
    for stock in (True, False):
        named = {"eval_dataset": tiny_data(8)}
        plain = {"loss_type": "dr_grpo", "scale_rewards": "none"}
        group = {"num_generations": 5, "per_device_train_batch_size": 40}
        trainer = build(stock=stock, method="mc_grpo", named=named, **plain, **group)
        trainer.num_generations_eval = 2
        logs = trainer.evaluate()
        runs.append({k: v for k, v in logs.items() if "time" not in k and "per_second" not in k})
    assert runs[0] == runs[1]

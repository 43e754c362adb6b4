"""How rewards are named, and the noise that is laid over one."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset

from rlkit.models import load_model
from rlkit.rewards import Noisy, resolve_reward
from rlkit.tasks.base import get_task
from rlkit.tasks.chain import exact

CHAIN = get_task("chain")


def rows(count: int) -> dict[str, list[str]]:
    """`count` right answers to one problem."""
    steps = "14-1=13;13+15=28"
    return {
        "prompts": ["14-1+15?"] * count,
        "completions": [f"{steps}#28"] * count,
        "gold": ["28"] * count,
        "steps": [steps] * count,
    }


def test_resolve_reward_takes_names_functions_and_specs() -> None:
    assert resolve_reward("exact", CHAIN, 0) is exact
    assert resolve_reward(None, CHAIN, 0) is exact
    assert resolve_reward(len, CHAIN, 0) is len
    assert resolve_reward(Noisy("exact"), CHAIN, 0).__name__ == "noisy_exact"
    assert resolve_reward(Noisy(Noisy("digits")), CHAIN, 0).__name__ == "noisy_noisy_digits"


def test_resolve_reward_lists_near_names() -> None:
    with pytest.raises(ValueError, match="Did you mean 'graded'"):
        resolve_reward("grade", CHAIN, 0)
    with pytest.raises(TypeError, match="not int"):
        resolve_reward(3, CHAIN, 0)  # type: ignore[arg-type]


def test_rows_without_gold_need_a_reward_of_ones_own() -> None:
    task = get_task(Dataset.from_dict({"prompt": ["a", "b", "c"]}))
    with pytest.raises(ValueError, match="no default reward"):
        resolve_reward(None, task, 0)


@pytest.mark.parametrize("spec", ["exact", "graded", "digits", Noisy("graded", rate=0.3, size=5.0)])
def test_every_reward_trains_the_base(build: Callable[..., Any], spec: str | Noisy) -> None:
    """Through the trainer: the columns arrive, the name is good for logs, rollouts of the base differ in reward."""
    model, tokenizer = load_model("chain")
    reward = resolve_reward(spec, CHAIN, 0)
    trainer = build(
        stock=True,
        model=model,
        data=CHAIN.dataset("train", 8),
        reward=reward,
        named={"processing_class": tokenizer},
        max_steps=2,
        max_completion_length=CHAIN.config["max_completion_length"],
    )
    trainer.train()
    logs = [log for log in trainer.state.log_history if "reward" in log]
    assert len(logs) == 2
    assert all(log[f"rewards/{reward.__name__}/mean"] >= 0 for log in logs)
    assert max(log["reward_std"] for log in logs) > 0
    assert max(log["grad_norm"] for log in logs) > 0
    assert all(log["completions/clipped_ratio"] == 0 for log in logs)


def test_noise_off_equals_the_base_reward() -> None:
    clean = CHAIN.rewards["graded"](**rows(8))
    assert Noisy("graded", rate=0.0).bind(CHAIN, 0)(**rows(8)) == clean
    assert Noisy("graded", size=0.0, rate=1.0).bind(CHAIN, 0)(**rows(8)) == clean


def test_noise_hits_the_stated_share_by_the_stated_size() -> None:
    values = Noisy("exact", rate=0.1, size=5.0).bind(CHAIN, 0)(**rows(4000))
    assert set(values) == {1.0, 6.0}
    assert values.count(6.0) == pytest.approx(400, abs=5 * math.sqrt(4000 * 0.09))


def test_two_sided_noise_is_balanced() -> None:
    values = Noisy("exact", rate=0.5, size=5.0, two_sided=True).bind(CHAIN, 0)(**rows(4000))
    assert set(values) == {-4.0, 1.0, 6.0}
    assert values.count(-4.0) == pytest.approx(1000, abs=150)


def test_noise_depends_on_seed_and_step_and_nothing_hidden() -> None:
    def draw(seed: int, step: int) -> list[float | None]:
        state = SimpleNamespace(global_step=step)
        return list(Noisy("exact", rate=0.5).bind(CHAIN, seed)(**rows(64), trainer_state=state))

    assert draw(0, 3) == draw(0, 3)
    assert draw(0, 3) != draw(1, 3)
    assert draw(0, 3) != draw(0, 4)
    assert list(Noisy("exact", rate=0.5).bind(CHAIN, 0)(**rows(64))) == draw(0, 0)


def test_noise_leaves_unscorable_rows_alone() -> None:
    def unscorable(completions: list[str], **columns: object) -> list[None]:
        return [None] * len(completions)

    assert Noisy(unscorable, rate=1.0).bind(CHAIN, 0)(**rows(3)) == [None] * 3


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_that_is_no_probability_is_an_error(rate: float) -> None:
    with pytest.raises(ValueError, match="rate is a probability"):
        Noisy(rate=rate)

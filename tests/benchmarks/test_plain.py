"""The loop by hand that trainers are timed against does what stock TRL does; else times could not be compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from benchmarks import plain
from tests.tiny import Build, history, length_reward, tiny_data, tiny_model, tiny_tokenizer

STEPS, PROMPTS, GROUP, TOKENS = 3, 8, 4, 8


class Seeded(TrainerCallback):
    """Every step draws from its own seed."""

    def on_step_begin(self, args: Any, state: Any, *more: Any, **about: Any) -> None:
        torch.manual_seed(state.global_step)


def by_hand(steps: int = STEPS) -> list[dict[str, float]]:
    size = {"prompts": PROMPTS, "group": GROUP, "tokens": TOKENS, "learning_rate": 1e-3}
    loop = plain.train(tiny_model(), tiny_tokenizer(), list(tiny_data()), length_reward, **size)
    lines = []
    for step in range(steps):
        torch.manual_seed(step)
        lines.append(next(loop))
    return lines


@pytest.mark.parametrize("stock", [True, False], ids=["trl", "rlkit"])
def test_loss_gradient_and_reward_are_those_of_the_trainers(build: Build, stock: bool) -> None:
    """Three steps on its own rollouts: equal weights after each, or the next one would differ."""
    trainer = build(stock=stock, shuffle_dataset=False, generation_kwargs=None)
    trainer.add_callback(Seeded())
    trainer.train()
    expected = history(trainer, "loss", "grad_norm", "reward")
    found = [(line["loss"], line["grad_norm"], line["reward"]) for line in by_hand()]
    assert min(norm for _, norm, _ in expected) > 0.01
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def test_a_completion_counts_up_to_its_first_end_token() -> None:
    """What follows is padding: neither context nor said."""
    model, tokenizer = tiny_model(), tiny_tokenizer()
    torch.manual_seed(0)
    ids, context, said = plain.draw(model, tokenizer, ["1+1?", "12+12?"] * 64, TOKENS)
    completions = ids[:, -TOKENS:]
    for row, counts in zip(completions.tolist(), said.tolist(), strict=True):
        length = row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else TOKENS
        assert counts == [True] * length + [False] * (TOKENS - length)
    assert torch.equal(context[:, -TOKENS:].bool(), said) and not said.all() and said.all(1).any()
    assert context[:, :2].tolist() == [[0, 0], [1, 1]] * 64


def test_advantages_and_loss_by_hand() -> None:
    """Rewards 0 and 2: mean 1, deviation 1.414. Ratios 1 and 1.5, the second clipped at 1.2, over three tokens."""
    A = plain.advantages(torch.tensor([0.0, 2.0]), 2)
    assert A.tolist() == pytest.approx([-0.7070, 0.7070], abs=1e-4)
    logps = torch.tensor([[1.0, 1.5], [1.5, 9.0]]).log()
    said = torch.tensor([[True, True], [True, False]])
    loss = plain.loss_of(logps, torch.zeros(2, 2), A, said)
    assert loss.item() == pytest.approx(-0.7070 * (-1.0 - 1.5 + 1.2) / 3, abs=1e-4)

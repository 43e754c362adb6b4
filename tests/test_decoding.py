"""`rlkit.decoding` against `generate`: the same tokens, and the random stream left at the same place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from rlkit import decoding
from rlkit.models import load_model
from tests.tiny import tiny_model

SAMPLING = {"do_sample": True, "temperature": 1.0, "top_k": 0}
PROMPTS = [[1, 5, 6, 13, 7]] * 5 + [[1, 9, 13, 8]] * 4 + [[1, 4]]


def by_generate(model: Any, prompts: list[list[int]], config: Any) -> tuple[list[list[int]], torch.Tensor]:
    """Completions up to their end token, and the random state behind them."""
    torch.manual_seed(0)
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
    with torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=mask, generation_config=config)[:, longest:].tolist()
    return [row[: row.index(2) + 1] if 2 in row else row for row in out], torch.get_rng_state()


def by_decoding(model: Any, prompts: list[list[int]], config: Any) -> tuple[list[list[int]], torch.Tensor]:
    assert decoding.suits(model, config)
    torch.manual_seed(0)
    how: dict[str, Any] = {"ends": [2], "pad": 0, "max_new_tokens": config.max_new_tokens}
    how["temperature"] = config.temperature if config.do_sample else None
    return decoding.decode(model, prompts, **how), torch.get_rng_state()


@pytest.mark.parametrize("train", [pytest.param(True, id="train mode"), pytest.param(False, id="evaluation mode")])
@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(SAMPLING, id="temperature 1"),
        pytest.param({**SAMPLING, "temperature": 0.7, "top_p": 1.0, "repetition_penalty": 1.0}, id="temperature .7"),
        pytest.param({"do_sample": False}, id="greedy"),
    ],
)
def test_the_tokens_and_the_random_state_are_those_of_generate(choice: dict[str, Any], train: bool) -> None:
    model = tiny_model().train(train)
    config = GenerationConfig(max_new_tokens=24, pad_token_id=0, **choice)
    (wanted, state), (found, behind) = by_generate(model, PROMPTS, config), by_decoding(model, PROMPTS, config)
    assert found == wanted and torch.equal(state, behind)
    if choice["do_sample"]:
        assert len({len(row) for row in found}) > 2  # rows end at different places, so that some leave early


def test_on_the_tiny_base_too_where_most_rows_end_early() -> None:
    model, tokenizer = load_model("chain")
    prompts = [tokenizer(text)["input_ids"] for text in ("8+7+1+7?", "5-1?", "9+9+3?") for _ in range(8)]
    config = GenerationConfig(max_new_tokens=32, pad_token_id=0, **SAMPLING)
    (wanted, state), (found, behind) = by_generate(model, prompts, config), by_decoding(model, prompts, config)
    assert found == wanted and torch.equal(state, behind)


def test_all_rows_end_at_once_and_one_token_only() -> None:
    model = tiny_model()
    config = GenerationConfig(max_new_tokens=1, pad_token_id=0, **SAMPLING)
    assert by_decoding(model, PROMPTS, config)[0] == by_generate(model, PROMPTS, config)[0]
    assert decoding.decode(model, [[1, 4]] * 3, ends=range(20), pad=0, max_new_tokens=9) != []
    assert {len(row) for row in decoding.decode(model, [[1, 4]] * 3, ends=range(20), pad=0, max_new_tokens=9)} == {1}


@pytest.mark.parametrize(
    "option",
    [
        pytest.param({"top_k": 5}, id="top k"),
        pytest.param({"top_p": 0.9}, id="nucleus"),
        pytest.param({"min_p": 0.1}, id="min p"),
        pytest.param({"repetition_penalty": 1.2}, id="repetition penalty"),
        pytest.param({"num_beams": 2}, id="beams"),
        pytest.param({"stop_strings": "#"}, id="stop strings"),
        pytest.param({"use_cache": False}, id="no cache"),
        pytest.param({"cache_implementation": "static"}, id="another cache"),
        pytest.param({"bad_words_ids": [[3]]}, id="bad words"),
        pytest.param({"pad_token_id": None}, id="no padding token"),
    ],
)
def test_anything_but_plain_sampling_is_left_to_generate(option: dict[str, Any]) -> None:
    model = tiny_model()
    model.generation_config.pad_token_id = None
    assert decoding.suits(model, GenerationConfig(max_new_tokens=4, **{"pad_token_id": 0, **SAMPLING}))
    assert not decoding.suits(model, GenerationConfig(max_new_tokens=4, **{"pad_token_id": 0, **SAMPLING, **option}))


def test_what_the_model_itself_asks_for_counts_and_a_top_k_that_nobody_set_is_50() -> None:
    model = tiny_model()
    open_choice = {"do_sample": True, "temperature": 1.0, "max_new_tokens": 4, "pad_token_id": 0}
    assert not decoding.suits(model, GenerationConfig(**open_choice))
    model.generation_config.repetition_penalty = 1.3
    assert not decoding.suits(model, GenerationConfig(**open_choice, top_k=0))


def test_dropout_windows_and_half_precision_are_left_to_generate() -> None:
    config = GenerationConfig(max_new_tokens=4, pad_token_id=0, **SAMPLING)
    assert decoding.suits(tiny_model().train(), config)
    assert not decoding.suits(tiny_model(attention_dropout=0.1).train(), config)
    assert not decoding.suits(tiny_model().to(torch.bfloat16), config)
    checkpointing = tiny_model().train()
    checkpointing.gradient_checkpointing_enable()
    assert not decoding.suits(checkpointing, config) and decoding.suits(checkpointing.eval(), config)


@pytest.mark.parametrize(
    "kwargs", [pytest.param({}, id="sampling"), pytest.param({"generation_kwargs": {"do_sample": False}}, id="greedy")]
)
def test_a_trainer_draws_what_stock_trl_draws_and_uses_it(
    monkeypatch: pytest.MonkeyPatch, kwargs: dict[str, Any]
) -> None:
    """With it and without it: every logged number is the same, bit for bit."""
    import rlkit

    def logged() -> list[dict[str, float]]:
        small: dict[str, Any] = {"prompts_per_step": 4, "num_generations": 4, "max_steps": 4, "train_size": 32}
        small |= {"learning_rate": 0.01, **kwargs}
        trainer = rlkit.trainer("grpo", preset="smoke", **small)
        trainer.train()
        times = ("runtime", "second", "time", "flos")
        return [{k: v for k, v in line.items() if not any(t in k for t in times)} for line in trainer.state.log_history]

    calls: list[int] = []
    inner = decoding.decode
    monkeypatch.setattr(decoding, "decode", lambda *a, **k: calls.append(1) or inner(*a, **k))
    with_it = logged()
    assert len(calls) >= 4
    monkeypatch.setattr(decoding, "suits", lambda *given: False)
    assert logged() == with_it

"""Draw completions from a model outside training: for evaluation, and to measure a frozen policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlkit.prompts import token_ids

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlkit.tasks.base import Task


def complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Any],
    *,
    max_new_tokens: int,
    greedy: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 512,
) -> list[str]:
    """One completion a prompt (a text, or chat messages), special tokens left out.

    torch's random state and the model's mode are put back. A completion that does not end within `max_new_tokens` comes
    as it is. Sampling is from the full distribution (no top-k, no top-p); the same seed gives the same completions.
    """
    options = {"max_new_tokens": max_new_tokens, "greedy": greedy, "temperature": temperature, "seed": seed}
    drawn = draw(model, tokenizer, prompts, batch_size=batch_size, **options)  # type: ignore[arg-type]
    return list(tokenizer.batch_decode(drawn, skip_special_tokens=True))


def draw(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Any],
    *,
    max_new_tokens: int,
    greedy: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 512,
) -> list[list[int]]:
    """As `complete`, as token ids: the end token included where one was drawn; padding may stand behind it."""
    import torch
    from transformers import GenerationConfig

    choice = {"do_sample": False} if greedy else {"do_sample": True, "temperature": temperature, "top_k": 0}
    config = GenerationConfig(max_new_tokens=max_new_tokens, pad_token_id=tokenizer.pad_token_id, **choice)
    drawn: list[list[int]] = []
    was_training = model.training
    model.eval()
    try:
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(seed)
            for start in range(0, len(prompts), batch_size):
                drawn += _batch(model, tokenizer, token_ids(prompts[start : start + batch_size], tokenizer), config)
    finally:
        model.train(was_training)
    return drawn


def _batch(model: Any, tokenizer: Any, ids: list[list[int]], config: Any) -> list[list[int]]:
    from rlkit import decoding

    ends = model.generation_config.eos_token_id
    if ends is not None and decoding.suits(model, config):
        how = {"max_new_tokens": config.max_new_tokens, "pad": config.pad_token_id}
        temperature = config.temperature if config.do_sample else None
        return decoding.decode(
            model, ids, ends=[ends] if isinstance(ends, int) else ends, temperature=temperature, **how
        )
    batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt", padding_side="left").to(model.device)
    out = model.generate(**batch, generation_config=config)
    return out[:, batch["input_ids"].shape[1] :].tolist()


def oracle_rewards(
    task: str | Task,
    rewards: Mapping[str, Any],
    *,
    model: str = "chain",
    prompts: int = 64,
    rollouts: int = 128,
    split: str = "validation",
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Rewards of many rollouts of a frozen policy on a few prompts: what a small group only sees a part of.

    Args:
        task: a task or its name.
        rewards: name to reward (the task's name for it, a function, or a spec of `rlkit.rewards`).
        model: a tiny base, folder or hub id.
        prompts: P, how many prompts of the split.
        rollouts: K, how many rollouts of each.
        split: where the prompts come from.
        seed: seeds prompts, rollouts and noise.

    Returns:
        Name to rewards of shape (P, K); the rollouts are the same for all names.

    """
    import numpy as np

    from rlkit.models import load_model
    from rlkit.rewards import resolve_reward
    from rlkit.tasks.base import get_task

    the_task = get_task(task)
    policy, tokenizer = load_model(model)
    rows = the_task.dataset(split, prompts, seed=seed)
    rows = rows.select([i for i in range(len(rows)) for _ in range(rollouts)])
    columns = {name: list(rows[name]) for name in rows.column_names}
    length = the_task.config["max_completion_length"]
    columns["completions"] = complete(policy, tokenizer, columns["prompt"], max_new_tokens=length, seed=seed)
    columns["prompts"] = columns.pop("prompt")
    graded = {name: resolve_reward(spec, the_task, seed)(**columns) for name, spec in rewards.items()}
    return {name: np.array(values, dtype=float).reshape(-1, rollouts) for name, values in graded.items()}

"""GRPO by hand: what one writes without a library. torch, and `generate` of transformers.

It is what rlkit's and TRL's trainers are set beside: the same rollouts, loss (`dapo`: the mean over all tokens of a
step), clipping and optimiser as TRL's defaults, so that loss and gradient are TRL's; a test says so. Left out: all that
a trainer offers beside a loop, such as accumulation, several processes, checkpoints, logging, checks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def advantages(rewards: Tensor, group: int) -> Tensor:
    """Rewards (B,) of groups in a row, standardised within each group."""
    groups = rewards.view(-1, group)
    return ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1)


@torch.no_grad()
def draw(model: Any, tokenizer: Any, prompts: Sequence[str], tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids (B, P + T), which of them count as context (B, P + T), and which completion tokens were said (B, T)."""
    inputs = tokenizer(list(prompts), return_tensors="pt", padding=True, padding_side="left")
    given = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    ids = model.generate(**given, do_sample=True, top_k=0, max_new_tokens=tokens, pad_token_id=tokenizer.pad_token_id)
    ends = ids[:, given["input_ids"].shape[1] :] == tokenizer.eos_token_id
    said = (ends.cumsum(1) - ends.long()) == 0  # up to the first end token, which counts
    return ids, torch.cat([given["attention_mask"], said.long()], 1), said


def logprobs(model: Any, ids: Tensor, context: Tensor, tokens: int) -> Tensor:
    """Log-probs (B, T) of the last `tokens` ids."""
    logits = model(input_ids=ids, attention_mask=context, logits_to_keep=tokens + 1).logits[:, :-1]
    return logits.log_softmax(-1).gather(2, ids[:, -tokens:, None]).squeeze(2)


def loss_of(logps: Tensor, old: Tensor, A: Tensor, said: Tensor, epsilon: float = 0.2) -> Tensor:
    """The clipped objective, (B, T), (B, T), (B,), (B, T); its mean over all tokens, with its sign turned."""
    ratio = (logps - old).exp()
    objective = torch.min(ratio * A[:, None], ratio.clamp(1 - epsilon, 1 + epsilon) * A[:, None])
    return -(objective * said).sum() / said.sum()


def train(
    model: Any,
    tokenizer: Any,
    rows: Sequence[dict[str, Any]],
    reward: Callable[..., Sequence[float]],
    *,
    prompts: int,
    group: int,
    tokens: int,
    learning_rate: float,
) -> Iterator[dict[str, float]]:
    """Train for ever, one step an item, on rows with a column `prompt`, in their order."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0, fused=True)
    endless = itertools.cycle(rows)
    model.train()
    while True:
        batch = [row for row in itertools.islice(endless, prompts) for _ in range(group)]
        columns = {name: [row[name] for row in batch] for name in batch[0]}
        ids, context, said = draw(model, tokenizer, columns["prompt"], tokens)
        width = said.shape[1]
        texts = tokenizer.batch_decode(ids[:, -width:], skip_special_tokens=True)
        rewards = torch.tensor(reward(prompts=columns.pop("prompt"), completions=texts, **columns))
        logps = logprobs(model, ids, context, width)
        loss = loss_of(logps, logps.detach(), advantages(rewards, group), said)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield {"loss": loss.item(), "grad_norm": norm.item(), "reward": rewards.mean().item()}

"""Loss and gradient of a step, worked out one unpadded row at a time."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.tiny import tiny_model, tiny_tokenizer


def loss_and_gradient(rows: Any, loss: str, longest: Any) -> Any:
    """Loss at ratio 1 and norm of its gradient, of rows (prompt, completion ids, advantage, keep).

    A kept row i of L_i tokens has coefficient A_i / (sum of L) for dapo, bnpo and cispo, A_i / (n L_i) for grpo, and
    A_i / (n longest) for dr_grpo, with n kept rows.
    """
    model, tokenizer = tiny_model(), tiny_tokenizer()
    kept = [(p, list(c), float(a)) for p, c, a, keep in rows if keep]
    tokens, total = sum(len(c) for _, c, _ in kept), 0.0
    for prompt, completion, advantage in kept:
        ids = torch.tensor([tokenizer(prompt)["input_ids"] + completion])
        logps = model(ids).logits[0, :-1].log_softmax(-1)[-len(completion) :]
        logps = logps.gather(1, torch.tensor(completion)[:, None])
        scale = {"grpo": len(kept) * len(completion), "dr_grpo": len(kept) * longest}.get(loss, tokens)
        term = -advantage * (logps if loss == "cispo" else (logps - logps.detach()).exp()).sum() / scale
        term.backward()
        total += term.item()
    return total, math.sqrt(sum(p.grad.pow(2).sum().item() for p in model.parameters()))

"""Score completions only: on a CPU TRL's fused LM head projects every position, those of the prompt included.

With 49,152 entries in the vocabulary and a prompt of 40 tokens before a completion of 16 that was half of a training
step. The scored positions reach the head alone; log-probs, entropies and gradients are the same up to rounding.
"""

from __future__ import annotations

import functools
import types
from typing import Any

LARGE = 8192
"""Entries of a vocabulary from which the head costs more than it costs to cut the prompt away."""


def score_completions_only(model: Any) -> None:
    """Have a model that TRL has given its fused head project the positions behind the prompt only; on a CPU."""
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = causal.get_output_embeddings()
    if head is None or head.weight.device.type != "cpu" or head.weight.size(0) < LARGE:
        return
    fused = causal.forward

    @functools.wraps(fused)  # `generate` reads the signature
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, labels: Any = None, **named: Any) -> Any:
        scored = None if labels is None or not fused_lm_head else (labels != -100).any(0).nonzero()
        if scored is None or not len(scored):
            return fused(*args, fused_lm_head=fused_lm_head, labels=labels, **named)
        first = max(1, int(scored[0]))  # a token is predicted at the position before it

        def cut(backbone: Any, given: Any, out: Any) -> Any:
            out.last_hidden_state = out.last_hidden_state[:, first - 1 : -1]
            return out

        handle = self.base_model.register_forward_hook(cut)
        try:
            return fused(*args, fused_lm_head=True, shift_labels=labels[:, first:], **named)
        finally:
            handle.remove()

    causal.forward = types.MethodType(forward, causal)

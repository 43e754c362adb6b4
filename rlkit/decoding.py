"""Draw completions token by token on a CPU: what `generate` draws, with less work.

Rows of one prompt share the pass over it, and rows that have ended leave the batch. What is drawn is the same, token
for token, and torch's random stream is left where `generate` leaves it: each step draws for all rows, ended ones too.
(In the last digits a matrix product may depend on how many rows it has: a token whose random number falls within such a
digit of the border between two tokens would differ. `tests/test_decoding.py` compares.)

Only for what needs nothing else: sampling at a temperature or greedy, a cache of full attention, 32-bit weights. For
anything else, and on GPUs, `suits` says no and `generate` it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

SMALLEST_CUT = 0.75
"""Ended rows leave once the live ones are fewer than this share of the batch: cutting the cache has a price too."""
NO_CHOICE = {"top_k": (None, 0), "top_p": (None, 1.0), "repetition_penalty": (None, 1.0), "num_beams": (None, 1)}
"""Options of `generate` that restrict nothing, at these values."""
UNDERSTOOD = {"max_new_tokens", "do_sample", "temperature", "pad_token_id", "bos_token_id", "eos_token_id", "use_cache"}
UNDERSTOOD |= {"disable_compile", "transformers_version", *NO_CHOICE}


def suits(model: Any, config: Any) -> bool:
    """Whether `decode` draws what `model.generate(generation_config=config)` would."""
    given = {name: value for name, value in config.to_diff_dict().items() if value is not None}
    own = {name: value for name, value in model.generation_config.to_diff_dict().items() if value is not None}
    said = {**own, **given}
    return (
        said.keys() <= UNDERSTOOD
        and all(said.get(name) in free for name, free in NO_CHOICE.items())
        and said.get("use_cache", True)
        and said.get("pad_token_id") is not None
        and (said.get("temperature") or 1.0) > 0
        and ("top_k" in given or "top_k" in own or not said.get("do_sample"))  # `generate` fills in 50
        and _is_plain(model)
    )


def _is_plain(model: Any) -> bool:
    """A decoder on a CPU in 32 bits whose forward draws no random numbers and caches every position."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    weights = next(model.parameters())
    random = [m for m in model.modules() if isinstance(m, nn.Dropout) and m.p > 0] if model.training else []
    return (
        weights.device.type == "cpu"
        and weights.dtype == torch.float32
        and getattr(model, "hf_quantizer", None) is None
        and not config.is_encoder_decoder
        and config is config.get_text_config()  # no images
        and kinds == {"full_attention"}
        and not getattr(config, "sliding_window", None)
        and not random
        and not (model.training and (getattr(config, "attention_dropout", 0.0) or model.is_gradient_checkpointing))
        and model._supports_logits_to_keep()
    )


@torch.no_grad()
def decode(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    ends: Sequence[int],
    pad: int,
    max_new_tokens: int,
    temperature: float | None = 1.0,
) -> list[list[int]]:
    """Completions (token ids, the end token included where one was drawn) of the prompts, one each.

    Args:
        model: one that `suits`.
        prompts: token ids; equal ones are read once.
        ends: tokens that end a completion.
        pad: what fills shorter prompts up on the left.
        max_new_tokens: at most so many are drawn.
        temperature: None for the likeliest token.

    """
    state = _Rows.read(model, prompts, pad)
    ending = torch.tensor(list(ends))
    drawn = torch.full((len(prompts), max_new_tokens), pad)
    live = torch.ones(len(prompts), dtype=torch.bool)
    for step in range(max_new_tokens):
        found = state.choose(len(prompts), temperature)
        drawn[:, step] = torch.where(live, found, pad)
        live &= ~torch.isin(found, ending)
        if not live.any() or step == max_new_tokens - 1:
            break
        if int(live.sum()) < SMALLEST_CUT * len(state.rows):
            state.keep(live[state.rows].nonzero().flatten())
        state.read_on(model, drawn[state.rows, step])
    return [_up_to_end(row, ends) for row in drawn[:, : step + 1].tolist()]


class _Rows:
    """The rows that are still in the batch: which they are, what attention may see, and what comes next."""

    def __init__(self, rows: Tensor, mask: Tensor, position: Tensor, cache: Any, logits: Tensor) -> None:
        self.rows, self.mask, self.position, self.cache, self.logits = rows, mask, position, cache, logits

    @classmethod
    def read(cls, model: Any, prompts: Sequence[Sequence[int]], pad: int) -> _Rows:
        """One pass over the different prompts; then each row gets those of its prompt."""
        from torch.nn.utils.rnn import pad_sequence
        from transformers import DynamicCache

        places: dict[tuple[int, ...], int] = {}
        where = torch.tensor([places.setdefault(tuple(prompt), len(places)) for prompt in prompts])
        ids = [torch.tensor(prompt) for prompt in places]
        mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True, padding_side="left")
        position = (mask.cumsum(1) - 1).clamp(min=0)
        cache = DynamicCache(config=model.config)
        given = {"attention_mask": mask, "position_ids": position, "past_key_values": cache, "use_cache": True}
        out = model(pad_sequence(ids, True, pad, "left"), **given, logits_to_keep=1)
        cache.batch_select_indices(where)
        return cls(torch.arange(len(prompts)), mask[where], position[where, -1:], cache, out.logits[where, -1])

    def choose(self, size: int, temperature: float | None) -> Tensor:
        """(size,) the next token of every row; of rows that have left, a number to be thrown away."""
        scores = self.logits.float()
        if temperature is None:
            return scores.new_zeros(size, dtype=torch.long).index_copy(0, self.rows, scores.argmax(-1))
        probs = (scores / temperature if temperature != 1 else scores).softmax(-1)
        if len(self.rows) < size:  # the random stream is drawn for all
            probs = probs.new_ones(size, probs.size(1)).index_copy(0, self.rows, probs)
        return torch.multinomial(probs, 1).squeeze(1)

    def keep(self, index: Tensor) -> None:
        self.cache.batch_select_indices(index)
        self.rows, self.mask, self.position = self.rows[index], self.mask[index], self.position[index]

    def read_on(self, model: Any, tokens: Tensor) -> None:
        """One token further."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], 1)
        self.position = self.position + 1
        given = {"attention_mask": self.mask, "position_ids": self.position, "past_key_values": self.cache}
        self.logits = model(tokens[:, None], **given, use_cache=True, logits_to_keep=1).logits[:, -1]


def _up_to_end(row: list[int], ends: Sequence[int]) -> list[int]:
    return next((row[: i + 1] for i, token in enumerate(row) if token in ends), row)

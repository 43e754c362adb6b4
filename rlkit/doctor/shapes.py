"""The shapes of decoder models: what memory and time are worked out from, without any weights.

`SHAPES` are the models that presets and notebooks name, from the `config.json` of their repositories at the commits of
`rlkit.models.loading.REVISIONS`; any other model is read from its own config.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A Llama-like decoder: attention with grouped keys and values, a gated MLP, RMS norms."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    """Whether the head is the embedding."""
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def linears(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of the linear maps of one layer: q, k, v, o, gate, up, down."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [(self.hidden, q), (self.hidden, kv), (self.hidden, kv), (q, self.hidden)]
        return [*attention, *[(self.hidden, self.intermediate)] * 2, (self.intermediate, self.hidden)]

    @property
    def linear_parameters(self) -> int:
        """Parameters of the linear maps of all layers: what is held in 4 bits."""
        return self.layers * sum(a * b for a, b in self.linears)

    @property
    def other_parameters(self) -> int:
        """Embedding, head where it is not tied, norms and biases: never in 4 bits."""
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        biases = (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        ends = self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden
        return self.layers * (norms + biases) + ends

    def lora_parameters(self, rank: int) -> int:
        """Adapters of one rank on all linear maps: A is rank x inputs, B outputs x rank."""
        return self.layers * sum(rank * (a + b) for a, b in self.linears)

    @property
    def cache_per_token(self) -> int:
        """Numbers that one token leaves in the cache of keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_dim


SHAPES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(576, 30, 9, 3, 64, 1536, 49_152, True),
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(896, 24, 14, 2, 64, 4864, 151_936, True, qkv_bias=True),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape(1536, 28, 12, 2, 128, 8960, 151_936, True, qkv_bias=True),
    "Qwen/Qwen2.5-Math-1.5B": Shape(1536, 28, 12, 2, 128, 8960, 151_936, True, qkv_bias=True),
    "Qwen/Qwen3-0.6B": Shape(1024, 28, 16, 8, 128, 3072, 151_936, True, qk_norm=True),
    "Qwen/Qwen3-1.7B": Shape(2048, 28, 16, 8, 128, 6144, 151_936, True, qk_norm=True),
    "Qwen/Qwen3-4B": Shape(2560, 36, 32, 8, 128, 9728, 151_936, True, qk_norm=True),
}


def shape_of(model: str) -> Shape:
    """The shape of a model by name, hub id or folder; only its config is read.

    Raises:
        OSError: its config cannot be had.
        ValueError: no decoder of this kind.
    """
    from rlkit.models.smollm2 import HUB, NAME

    name = HUB if model == NAME else model
    if name in SHAPES:
        return SHAPES[name]
    from transformers import AutoConfig

    from rlkit import paths
    from rlkit.models import base_names

    source = str(paths.bases() / name) if name in base_names() else name
    return of_config(AutoConfig.from_pretrained(source, trust_remote_code=False))


def of_config(config: Any) -> Shape:
    """The shape that a config of transformers describes.

    Raises:
        ValueError: it lacks what a decoder of this kind has.
    """
    text = config.get_text_config()
    try:
        heads = text.num_attention_heads
        return Shape(
            hidden=text.hidden_size,
            layers=text.num_hidden_layers,
            heads=heads,
            kv_heads=getattr(text, "num_key_value_heads", None) or heads,
            head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
            intermediate=text.intermediate_size,
            vocab=text.vocab_size,
            tied=bool(text.tie_word_embeddings),
            qkv_bias=text.model_type == "qwen2" or bool(getattr(text, "attention_bias", False)),
            qk_norm=text.model_type.startswith("qwen3"),
        )
    except AttributeError as error:
        raise ValueError(
            f"A model of type {text.model_type!r} is no decoder whose memory we can work out: {error}"
        ) from None

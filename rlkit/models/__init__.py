"""Models and tokenizers: the tiny bases by name, SmolLM2, any folder or hub id; in 4 bits and with LoRA where asked.

`loading` is what is called; `smollm2` has a pretrained model without a hub; `adapters` has LoRA and 4-bit weights.
"""

from rlkit.models.loading import Loaded, base_names, load, load_model, quiet

__all__ = ["Loaded", "base_names", "load", "load_model", "quiet"]

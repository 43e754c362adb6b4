"""LoRA adapters and 4-bit weights (QLoRA, arXiv 2305.14314): settings to what PEFT and bitsandbytes take.

4-bit weights are frozen: what is trained are the adapters on top, and they are never merged into 4-bit weights, which
would round what was learnt away. The reference of a KL penalty is the model with its adapters switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUANTIZATIONS = ("none", "nf4")


def quantization_config(quantization: str) -> Any:
    """What bitsandbytes is told, or None: NF4 with double quantisation, computing in bf16 on a GPU, fp32 on a CPU.

    Raises:
        ValueError: there is no such quantization.
    """
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization is {' or '.join(QUANTIZATIONS)}, not {quantization!r}.")
    if quantization == "none":
        return None
    import torch
    from transformers import BitsAndBytesConfig

    compute = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )


def lora_config(settings: Mapping[str, Any]) -> Any:
    """PEFT's config from the settings `lora_r`, `lora_alpha`, `lora_dropout`, `lora_target_modules`; None without LoRA.

    Raises:
        ValueError: 4-bit weights without adapters: nothing could be trained.
    """
    rank = settings.get("lora_r") or 0
    if not rank:
        if settings.get("quantization", "none") != "none":
            raise ValueError(
                f"quantization={settings['quantization']!r} freezes all weights, and lora_r is 0: nothing could be "
                "trained. Set lora_r, for example to 16."
            )
        return None
    from peft import LoraConfig

    targets = settings.get("lora_target_modules") or "all-linear"
    return LoraConfig(
        r=rank,
        lora_alpha=settings.get("lora_alpha") or 2 * rank,
        lora_dropout=settings.get("lora_dropout") or 0.0,
        target_modules=targets if targets == "all-linear" else targets.split("+"),
        task_type="CAUSAL_LM",
    )


def four_bit_layers(model: Any) -> list[Any]:
    """The layers of a model whose weights bitsandbytes holds in 4 bits."""
    if not getattr(model, "is_loaded_in_4bit", False):
        return []
    from bitsandbytes.nn import Linear4bit

    return [module for module in model.modules() if isinstance(module, Linear4bit)]


def trainable_in_4_bits(model: Any) -> Any:
    """Keep bitsandbytes from its fast path on CPUs with AVX512-BF16, which has no backward pass; gives the model.

    After one forward pass in eval mode that path repacks the weights for good: every later gradient of an adapter is 0
    without an error (bitsandbytes 0.50, `Linear4bit.forward`).
    """
    for layer in four_bit_layers(model):
        layer.support_avx512bf16_for_cpu = False
    return model

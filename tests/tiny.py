"""A tiny model, data and rewards made here, so that tests of trainers need no task and no base."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Build = Callable[..., Any]
"""The fixture `build`: see `conftest.py`."""
ALPHABET = "0123456789+-=;#.?"


def tiny_tokenizer(**special: Any) -> Any:
    """One token a character; `special` overrides pad, bos or eos token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, **{c: i + 3 for i, c in enumerate(ALPHABET)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", **special}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def tiny_model(seed: int = 0, context: Any = 64, **config: Any) -> Any:
    """A Llama of 8k parameters with random weights: sampling is nearly uniform, so lengths and rewards vary."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"vocab_size": len(ALPHABET) + 3, "max_position_embeddings": context, "tie_word_embeddings": True}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = LlamaForCausalLM(LlamaConfig(**{**shape, **ends, "initializer_range": 0.1, **config}))
    model.generation_config = GenerationConfig(**ends)
    return model


def tiny_data(size: int = 16) -> Any:
    """Prompts of different lengths, with a numeric `id`."""
    from datasets import Dataset

    prompts = [f"{i}+{i * i % 37}?" for i in range(size)]
    return Dataset.from_dict({"prompt": prompts, "gold": [str(i % 10) for i in range(size)], "id": list(range(size))})


def length_reward(completions: Sequence[Any], **columns: Any) -> Any:
    """Graded: tokens that are digits, a little for each other character."""
    return [sum(c.isdigit() for c in text) / 4 + len(text) / 64 for text in completions]


def half_reward(completions: Sequence[Any], id: Any, **columns: Any) -> Any:
    """Two-valued, and 0 for every second prompt: more than half of the rows carry no gradient."""
    return [float(i % 2 * (sum(map(ord, text)) % 2)) for text, i in zip(completions, id, strict=True)]


def tiny_config(tmp_path: Path, **options: Any) -> Any:
    """A GRPOConfig for a CPU: 32 completions a step, groups of 4."""
    from trl import GRPOConfig

    base = {
        "output_dir": str(tmp_path),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "disable_dropout": True,
        "max_completion_length": 8,
        "max_steps": 3,
        "num_generations": 4,
        "per_device_train_batch_size": 32,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "generation_kwargs": {"suppress_tokens": [0]},  # TRL takes a drawn pad token for an end
    }
    return GRPOConfig(**{**base, **options})


def distill_config(tmp_path: Path, **options: Any) -> Any:
    """A DistillationConfig for a CPU: 8 completions a step."""
    from trl import DistillationConfig

    base = tiny_config(tmp_path)
    same = ("use_cpu", "bf16", "gradient_checkpointing", "report_to", "learning_rate", "lr_scheduler_type", "max_steps")
    same += ("logging_steps", "save_strategy", "disable_tqdm", "disable_dropout", "generation_kwargs")
    own = {"output_dir": str(tmp_path), "max_completion_length": 8, "per_device_train_batch_size": 8, "beta": 1.0}
    return DistillationConfig(**{**{name: getattr(base, name) for name in same}, **own, **options})


def history(trainer: Any, *names: Any) -> Any:
    """One tuple of logged values per step that was trained; 0 for what a step did not log."""
    return [tuple(line.get(name) or 0.0 for name in names) for line in trainer.state.log_history if "loss" in line]

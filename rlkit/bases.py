"""The tiny bases: how each is pretrained, in one short loop on one thread, and saved with its card and loss curve.

Left out on purpose: checkpoints, mixed precision, several threads. A base takes minutes and is committed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit import paths
from rlkit.machine import machine_class
from rlkit.models import quiet
from rlkit.recipes import CHARACTERS, RECIPES, Recipe, get_recipe

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

__all__ = ["CHARACTERS", "RECIPES", "Recipe", "build_base", "get_recipe", "pretrain", "tokenizer"]

CURVE = 20
"""Losses that are recorded with a base and retrained by a test."""
PAD, BOS, EOS, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"


def tokenizer(characters: str = CHARACTERS) -> PreTrainedTokenizerFast:
    """One token a character, one `<s>` before every text; `<pad>`, `<s>`, `</s>` and `<unk>` are tokens 0 to 3."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate([PAD, BOS, EOS, UNKNOWN, *characters])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    inner.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, vocabulary[BOS])])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def architecture(recipe: Recipe, vocabulary: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """An untrained Llama of the recipe's shape; call it with torch's generator seeded."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    ends = {
        "pad_token_id": vocabulary.pad_token_id,
        "bos_token_id": vocabulary.bos_token_id,
        "eos_token_id": vocabulary.eos_token_id,
    }
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=recipe.width,
        intermediate_size=recipe.width * 3,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        **ends,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(**ends)
    return model


def batches(recipe: Recipe, vocabulary: PreTrainedTokenizerFast) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Token ids (B, L), padded on the right, and labels (B, L) that are -100 outside the solution."""
    import torch

    rows = recipe.corpus()
    end = vocabulary.eos_token_id
    while True:
        pairs = [next(rows) for _ in range(recipe.batch)]
        prompts = vocabulary([prompt for prompt, _ in pairs]).input_ids
        answers = [[*ids, end] for ids in vocabulary([a for _, a in pairs], add_special_tokens=False).input_ids]
        length = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
        ids = torch.full((recipe.batch, length), vocabulary.pad_token_id)
        labels = torch.full((recipe.batch, length), -100)
        for i, (p, a) in enumerate(zip(prompts, answers, strict=True)):
            ids[i, : len(p) + len(a)] = torch.tensor(p + a)
            labels[i, len(p) : len(p) + len(a)] = torch.tensor(a)
        yield ids, labels


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: sums come in one order, so the same machine class gives the same weights."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pretrain(recipe: Recipe, steps: int | None = None) -> tuple[LlamaForCausalLM, list[float]]:
    """Train a base from nothing.

    Args:
        recipe: how.
        steps: stop after so many steps of the recipe's own schedule; None trains them all.

    Returns:
        The model and the loss of each step (nats a solution token).
    """
    import torch

    vocabulary = tokenizer(recipe.characters)
    losses: list[float] = []
    with one_thread(), torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        model = architecture(recipe, vocabulary).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
        rows = batches(recipe, vocabulary)
        for step in range(recipe.steps if steps is None else steps):
            ids, labels = next(rows)
            cosine = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
            optimizer.param_groups[0]["lr"] = recipe.learning_rate * min(1, (step + 1) / recipe.warmup) * cosine
            mask = (ids != vocabulary.pad_token_id).long()
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return model.eval(), losses


def build_base(name: str, out: str | Path | None = None, steps: int | None = None) -> list[float]:
    """Pretrain a base and write its folder: weights, tokenizer, card and loss curve.

    Args:
        name: which base.
        out: the folder to write; None replaces the committed one.
        steps: stop early, for a test of the first steps; None for the real thing.

    Returns:
        The loss of each step (nats a solution token).

    Raises:
        ValueError: there is no recipe of that name.
    """
    recipe = get_recipe(name)
    folder = paths.bases() / name if out is None else Path(out)
    with one_thread():
        model, losses = pretrain(recipe, steps)
        measured = recipe.measure(model, tokenizer(recipe.characters))
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        model.save_pretrained(folder)
    # A fresh one: the other would be saved with the padding of its last call.
    tokenizer(recipe.characters).save_pretrained(folder)
    curve = {"machine": machine_class(), "recipe": dataclasses.asdict(recipe), "loss": losses[:CURVE]}
    write_text(folder / "curve.json", json.dumps(curve, indent=1) + "\n")
    write_text(folder / "README.md", recipe.card(name, measured, model.num_parameters()))
    return losses


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with plain line feeds, so that the bytes are the same on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")

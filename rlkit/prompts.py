"""The one place where a task's prompts become what the model is given.

TRL applies a chat template to message lists only: an instruct model that is given a bare text never ends its turn,
every completion is cut, and the reward is 0 without an error. A text that already holds the template starts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

BARE = ("wrap", "refuse", "keep")


def for_model(rows: Dataset, tokenizer: PreTrainedTokenizerBase, bare: str = "wrap") -> Dataset:
    """The same rows with prompts in the form that the tokenizer's model was trained on.

    Args:
        rows: with a column `prompt`, texts or chat messages.
        tokenizer: the model's; one with a chat template belongs to an instruct model.
        bare: a bare text for an instruct model: "wrap" it as the user's message, "refuse" it, or "keep" it.

    Raises:
        ValueError: messages for a model without a chat template, a template applied by hand, or refused bare texts.
    """
    if bare not in BARE:
        raise ValueError(f"bare is one of {', '.join(BARE)}, not {bare!r}.")
    if not len(rows) or "prompt" not in rows.column_names:
        return rows
    prompts = list(rows["prompt"])
    for fault in faults(prompts, tokenizer, bare):
        raise ValueError(fault)
    if not tokenizer.chat_template or bare == "keep" or not any(isinstance(prompt, str) for prompt in prompts):
        return rows
    from datasets import Dataset

    table = {name: list(rows[name]) for name in rows.column_names}
    table["prompt"] = [_as_messages(prompt) for prompt in prompts]
    return Dataset.from_dict(table)


def _as_messages(prompt: Any) -> Any:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def faults(prompts: Sequence[Any], tokenizer: PreTrainedTokenizerBase, bare: str = "wrap") -> list[str]:
    """What is wrong with the form of prompts, one sentence each with the first row; empty when all is well."""
    texts = [isinstance(prompt, str) for prompt in prompts]
    found = []
    if bare != "keep":
        marks = [i for i, prompt in enumerate(prompts) if _special_in(prompt, tokenizer)]
        found += _said(
            marks,
            "hold special tokens of the tokenizer: the chat template was applied by hand and would be applied again, "
            "or the text would start twice. Give chat messages, or the plain text.",
        )
    if not tokenizer.chat_template:
        messages = [i for i, text in enumerate(texts) if not text]
        found += _said(messages, "are chat messages, and the tokenizer has no chat template. Give plain texts.")
    elif bare == "refuse":
        plain = [i for i, text in enumerate(texts) if text]
        found += _said(plain, "are bare texts, and the model is an instruct model. Give chat messages, or wrap them.")
    return found


def _said(rows: list[int], problem: str) -> list[str]:
    if not rows:
        return []
    many = f"{len(rows)} prompts (the first is row {rows[0]})" if len(rows) > 1 else f"The prompt of row {rows[0]}"
    return [f"{many}: {problem}"]


def _special_in(prompt: Any, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a prompt's text holds a special token; those of one or two letters may be ordinary text."""
    contents = [prompt] if isinstance(prompt, str) else [str(message.get("content", "")) for message in prompt]
    marks = [mark for mark in tokenizer.all_special_tokens if len(mark) > 2]
    return any(mark in content for mark in marks for content in contents)


def token_ids(prompts: Sequence[Any], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids of prompts as TRL's trainer gives them to the model: template applied once, one start token at most."""
    ids: list[list[int]] = []
    for prompt in prompts:
        if isinstance(prompt, str):
            ids.append(list(tokenizer(prompt)["input_ids"]))
        else:
            made = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)
            ids.append(list(made["input_ids"]))
    return ids


def stop_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Every token that ends a completion: the tokenizer's end token and all those of the model's generation config."""
    own = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = own if isinstance(own, list) else [] if own is None else [own]
    return {*listed, *([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])}


def turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token with which the chat template ends the model's turn; None without a template."""
    if not tokenizer.chat_template:
        return None
    told = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    text = str(tokenizer.apply_chat_template(told, tokenize=False))
    after = text[text.rindex("b") + 1 :]
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    return int(ids[0]) if ids else None

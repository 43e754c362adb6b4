"""Guards: what would train wrongly or not at all is an error that names the cause and the fix.

TRL accepts most of these in silence: a data set smaller than one generation batch trains 0 steps, `cispo` with the
default cap scales every gradient by 1/5, a sequence-level ratio with a token-summed loss weights rows by their length.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from rlkit.method import Method

if TYPE_CHECKING:
    from rlkit.trainers.rlvr import RLVRTrainer

logger = logging.getLogger(__name__)

TOKEN_SUMMED = ("bnpo", "dr_grpo", "dapo", "cispo")


def arguments(given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `GRPOTrainer` by name; unknown names are the TypeError that TRL would give."""
    bound = inspect.signature(GRPOTrainer.__init__).bind(None, *given, **named)
    return {name: value for name, value in bound.arguments.items() if name != "self"}


def with_method_config(args: Any, method: Method) -> Any:
    """The config, with the options that the method sets where `args` has TRL's default; what `args` sets stands.

    Options that the method derives from others (a group of G + 1) are not guessed here: in `args` they are final.
    """
    wanted = {name: value for name, value in method.config.items() if not callable(value)}
    defaults = {f.name: f.default for f in dataclasses.fields(args)}
    out = copy.copy(args)
    for name, value in wanted.items():
        if name not in defaults:
            raise ValueError(f"Method {method.name!r} sets {name!r}, which is not an option of {type(args).__name__}.")
        have = getattr(args, name)
        if have == value:
            continue
        if have == defaults[name]:
            setattr(out, name, value)
            logger.warning("Method %r sets %s=%r (args had TRL's default %r).", method.name, name, value, have)
        else:
            logger.warning("Method %r wants %s=%r; args say %r, which stands.", method.name, name, value, have)
    return out


def refuse_remote_code(args: Any) -> None:
    """Raise ValueError where TRL's arguments ask for running code that comes with a model."""
    names = ("trust_remote_code", "model_init_kwargs", "teacher_model_init_kwargs")
    values = [getattr(args, name, None) for name in names]
    if values[0] or any(kwargs.get("trust_remote_code") for kwargs in values[1:] if isinstance(kwargs, dict)):
        raise ValueError(
            "trust_remote_code: rlkit never runs code that comes with a model. Load it yourself and pass the object."
        )


def check_config(args: GRPOConfig) -> None:
    """Raise ValueError for settings that train something else than they say."""
    refuse_remote_code(args)
    if args.loss_type == "cispo" and (args.epsilon_high is None or args.epsilon_high < 1):
        raise ValueError(
            f"loss_type='cispo' takes epsilon_high as the cap of the ratio itself, and it is {args.epsilon_high} "
            f"(None means epsilon={args.epsilon}), which scales every gradient down. Set epsilon_high to 1 or more, "
            "for example 5.0."
        )
    if args.importance_sampling_level == "sequence" and args.loss_type in TOKEN_SUMMED:
        raise ValueError(
            f"importance_sampling_level='sequence' with loss_type={args.loss_type!r} sums the sequence's ratio once "
            "per token, so that long rows count more. Use loss_type='grpo' for GSPO, or "
            "importance_sampling_level='token'."
        )
    check_batch(args.generation_batch_size, args.num_generations)


def check_batch(generation_batch_size: int, num_generations: int) -> None:
    """Raise ValueError, with the nearest valid values, for a group of one or a batch that cuts a group."""
    size, group = generation_batch_size, num_generations
    if group < 2:
        raise ValueError(f"num_generations={group}: a group of one has no baseline. The smallest group is 2.")
    if size % group:
        sizes = [s for s in (size // group * group, (size // group + 1) * group) if s]
        fits = [g for g in range(2, size + 1) if size % g == 0]
        groups = [g for g in fits if g < group][-1:] + [g for g in fits if g > group][:1]
        raise ValueError(
            f"A generation batch of {size} completions (per_device_train_batch_size x processes x "
            f"steps_per_generation) does not divide into groups of num_generations={group}. Nearest "
            f"batches: {_either(sizes)}; nearest num_generations for {size}: {_either(groups)}."
        )


def check_dataset_size(dataset: Any, args: GRPOConfig) -> None:
    """Raise ValueError where an epoch would have no whole generation batch."""
    if not isinstance(dataset, Dataset):
        return
    have, need = len(dataset), args.generation_batch_size // args.num_generations
    if have >= need:
        return
    fits = f"a generation batch of {have * args.num_generations} completions" if have else "more data"
    raise ValueError(
        f"The train set has {have} prompts and one generation batch takes {need} ({args.generation_batch_size} "
        f"completions in groups of {args.num_generations}): TRL would train 0 steps without a word. "
        f"Use at least {need} prompts, or {fits}."
    )


def check_tokenizer(processing_class: Any) -> None:
    """Raise ValueError where TRL would pick a pad token by itself."""
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    if tokenizer is None or tokenizer.pad_token_id is not None:
        return
    raise ValueError(
        "The tokenizer has no pad token. Choose one: `tokenizer.pad_token = tokenizer.eos_token` is safe here, because "
        "masks are made from lengths and the end token of a finished completion stays in the loss; or add a pad token."
    )


def check_reference(model: Any, args: GRPOConfig, peft_config: Any) -> None:
    """Raise ValueError where TRL would look for a reference model that was never saved."""
    if args.beta == 0 or isinstance(model, str) or peft_config is not None or hasattr(model, "peft_config"):
        return
    if not getattr(model.config, "_name_or_path", ""):
        raise ValueError(
            f"beta={args.beta} needs a reference model, which TRL loads from where the policy came from, and this "
            "policy was made in memory. Save it to a folder and load it from there, train an adapter (peft_config), or "
            "set beta=0."
        )


def check_trainable(model: torch.nn.Module) -> None:
    """Raise ValueError for a model without a trainable parameter."""
    if any(p.requires_grad for p in model.parameters()):
        return
    raise ValueError(
        "No parameter of the model is trainable. A loaded adapter is frozen unless it is loaded with "
        "`PeftModel.from_pretrained(..., is_trainable=True)`."
    )


def fitting(dataset: Any, what: str, action: str, trainer: RLVRTrainer) -> Any:
    """The rows whose prompt and longest completion fit the model's context.

    Args:
        dataset: a `datasets.Dataset`; anything else is passed on and checked batch by batch.
        what: "train" or "eval", for the message.
        action: "refuse" or "drop".
        trainer: knows tokenizer, context and completion length.

    Raises:
        ValueError: some do not fit and `action` is "refuse".

    """
    room = trainer.prompt_room
    if room is None or not isinstance(dataset, Dataset) or "prompt" not in dataset.column_names:
        return dataset
    prompts = dataset["prompt"]
    text = isinstance(prompts[0], str) if len(dataset) else False
    if text and max(len(p.encode("utf-8")) for p in prompts) + 8 <= room:  # a token is a byte or more
        return dataset
    lengths = [
        len(ids) for start in range(0, len(prompts), 1000) for ids in trainer.tokenize(prompts[start : start + 1000])
    ]
    fits = [i for i, length in enumerate(lengths) if length <= room]
    left_out = len(lengths) - len(fits)
    if not left_out:
        return dataset
    told = (
        f"{left_out} of {len(lengths)} {what} prompts do not fit: the longest has {max(lengths)} tokens, and "
        f"{room} are left of the model's context after max_completion_length={trainer.max_completion_length}"
    )
    if action == "refuse":
        raise ValueError(f"{told}. Shorten them, lower max_completion_length, or drop them with on_long_prompt='drop'.")
    logger.warning("%s; they are dropped.", told)
    trainer.dropped_prompts[what] = trainer.dropped_prompts.get(what, 0) + left_out
    return dataset.select(fits)


def _either(values: Sequence[int]) -> str:
    return " or ".join(map(str, values)) or "none"


def steps_to_record(given: Any) -> frozenset[int]:
    """The numbers of optimiser steps that `record_steps` names. Raises ValueError for anything else."""
    good = isinstance(given, Iterable) and not isinstance(given, str)
    found: list[Any] = list(given) if good else [None]
    if not all(isinstance(n, numbers.Integral) and not isinstance(n, bool) and int(n) >= 0 for n in found):
        raise ValueError(
            "record_steps is a list of optimiser steps, counted from 0 (the first), for example [0, 50], not "
            f"{given!r:.60}."
        )
    return frozenset(map(int, found))


def check_recorded(steps: Iterable[int], end: int) -> None:
    """Raise ValueError where a step to record lies behind the end of the run."""
    if late := sorted(step for step in steps if step > end):
        raise ValueError(f"record_steps names step {late[0]}, and the run ends after {end} steps.")


def check_one_generation(args: Any) -> None:
    """Raise ValueError where an optimiser step trains on several generation batches: a step shows one of them."""
    if args.steps_per_generation < args.gradient_accumulation_steps:
        raise ValueError(
            f"With steps_per_generation={args.steps_per_generation} and gradient_accumulation_steps="
            f"{args.gradient_accumulation_steps} an optimiser step trains on several generation batches, which slow "
            "motion (preview, record_steps, compare) cannot show. Leave steps_per_generation at its default."
        )

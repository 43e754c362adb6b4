"""What the trainers of both families share: prompts that fit, their order, contexts, logs, stepping aside."""

from __future__ import annotations

import copy
import logging
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import Trainer
from trl.trainer.utils import pad

from rlkit import decoding
from rlkit.method import Context, Method
from rlkit.trainers import checks, rows
from rlkit.trainers.sampler import EpochSampler

logger = logging.getLogger(__name__)

TRACES = ("_metrics", "_logs", "_pending_metrics", "_pending_extra_logs", "own_values", "uncharged_tokens")


class Shared(Trainer):
    """Helpers of the trainer and for hooks; mixed in before one of TRL's trainers."""

    method: Method
    train_dataset: Any
    eval_dataset: Any
    generated_tokens: int
    own_values: dict[str, list[float]]
    has_hooks: bool
    max_completion_length: int
    pad_to_multiple_of: int | None
    sampler: EpochSampler | None
    _aside: bool
    _metrics: dict[str, Any]
    _told: set[str]
    _tokenizer: Any
    generation_config: Any
    eos_token_ids: Sequence[int]

    def _set_data(self, on_long_prompt: str) -> None:
        """The `data` seam, between two checks that prompts fit."""
        before = [(self.train_dataset, "train"), (self.eval_dataset, "eval")]
        self.train_dataset, self.eval_dataset = (checks.fitting(d, w, on_long_prompt, self) for d, w in before)
        if self.method.data is not None:
            made = self.method.data(self.train_dataset, self)
            if not isinstance(made, Dataset):
                got = type(made).__name__
                raise ValueError(f"Method {self.method.name!r}, seam 'data': expected a datasets.Dataset, got {got}.")
            self.train_dataset = checks.fitting(made, "train", on_long_prompt, self)
        self._check_size()

    def _check_size(self) -> None:
        """Refuse a train set without one whole generation batch."""
        checks.check_dataset_size(self.train_dataset, self.args)

    @property
    def prompt_room(self) -> int | None:
        """Tokens of the model's context left for a prompt beside the longest completion; None: no limit."""
        context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return None if context is None else context - self.max_completion_length

    def _get_train_sampler(self, dataset: Any = None) -> EpochSampler:
        stock = super()._get_train_sampler(dataset)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        order = (stock.data_source, stock.mini_repeat_count, stock.batch_size, stock.repeat_count, stock.shuffle)
        self.sampler = EpochSampler(*order, seed)
        return self.sampler

    def context(self, **fields: Any) -> Context:
        """A `Context` with step, seed, options and `log` filled in."""
        state = self.state
        known = {"step": state.global_step, "max_steps": state.max_steps, "seed": self.args.seed}
        return Context(**known, options=self.method.options, log=self.log_value, **fields)

    def tokenize(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Token ids of prompts (texts or chat messages), as the policy sees them."""
        return self._tokenize_prompts(list(prompts))[0]

    def decoded(self, prompt_ids: Sequence[Sequence[int]], images: Any, fields: Any) -> list[list[int]] | None:
        """Completions by `rlkit.decoding`; None where it takes `generate`: engines, shards, images, other sampling."""
        sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled or self.pad_to_multiple_of is not None
        engine = getattr(self, "use_vllm", False) or getattr(self, "use_transformers_continuous_batching", False)
        model = self.accelerator.unwrap_model(self.model)
        if sharded or engine or images or fields or not decoding.suits(model, self.generation_config):
            return None
        config = self.generation_config
        how = {"max_new_tokens": config.max_new_tokens, "ends": self.eos_token_ids, "pad": config.pad_token_id}
        temperature = (config.temperature or 1.0) if config.do_sample else None
        return decoding.decode(model, prompt_ids, temperature=temperature, **how)

    def _padded(self, ids: Sequence[Sequence[int]], side: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and their mask as TRL pads them."""
        tensors = [torch.tensor(list(row)) for row in ids]
        how = {"padding_side": side, "pad_to_multiple_of": self.pad_to_multiple_of}
        tokens = pad(tensors, padding_value=self._tokenizer.pad_token_id, **how)
        mask = pad([torch.ones_like(row) for row in tensors], padding_value=0, **how)
        return tokens.to(self.accelerator.device), mask.to(self.accelerator.device)

    def anywhere(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank: a loop that ends with it ends on all ranks together."""
        if self.accelerator.num_processes == 1:
            return flag
        return bool(self.accelerator.gather(torch.tensor([int(flag)], device=self.accelerator.device)).any())

    def of_all_ranks(self, key: str, value: torch.Tensor) -> Any:
        """A tensor's rows of all ranks, padded to the longest and the most; rows that are padding do not count."""
        value = value.int() if value.dtype == torch.bool else value
        wide = self.accelerator.pad_across_processes(value, dim=1, pad_first=key in rows.PROMPT_KEYS)
        return self.accelerator.gather(self.accelerator.pad_across_processes(wide, dim=0))

    def log_value(self, name: str, value: float) -> None:
        """Log a metric of one's own: its mean over a logging step and over ranks; NaN is left out."""
        if not math.isnan(number := float(value)):
            self.own_values.setdefault(name, []).append(number)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's logging, with what hooks have logged."""
        if self.model.training and self.has_hooks:
            parts = gather_object([{name: (sum(values), len(values)) for name, values in self.own_values.items()}])
            for name in sorted({name for part in parts for name in part}):
                totals = [part[name] for part in parts if name in part]
                mean = sum(total for total, _ in totals) / sum(count for _, count in totals)
                self._metrics["train"][name].append(mean)
            self.own_values.clear()
        super().log(logs, start_time)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Roll out or grade without a trace: metrics, logs, token counts, mode and random state are put back."""
        kept = {name: copy.deepcopy(getattr(self, name)) for name in TRACES if hasattr(self, name)}
        seen, generated, training = self.state.num_input_tokens_seen, self.generated_tokens, self.model.training
        was_aside, self._aside = self._aside, True
        python, numpy = random.getstate(), np.random.get_state()
        device = self.accelerator.device
        self.model.train()  # as TRL generates: dropout, if there is any, acts as it does in training
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=True):
                yield
        finally:
            for name, value in kept.items():
                setattr(self, name, value)
            self._aside = was_aside
            random.setstate(python)
            np.random.set_state(numpy)
            self.state.num_input_tokens_seen, self.generated_tokens = seen, generated
            self.model.train(training)

    def tell(self, message: str, *values: Any) -> None:
        """Log a warning once a trainer."""
        if message not in self._told:
            self._told.add(message)
            logger.warning(message, *values)

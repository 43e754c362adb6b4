"""What hooks may call on the trainer: tokenize, generate, grade, collect, and step aside without a trace."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

TRACES = ("_metrics", "_logs", "_pending_metrics", "_pending_extra_logs")


class Tools(GRPOTrainer):
    """Helpers for hooks; mixed into `RLVRTrainer`."""

    generated_tokens: int

    def tokenize(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Token ids of prompts (texts or chat messages), as the policy sees them."""
        return self._tokenize_prompts(list(prompts))[0]

    def generate_rows(self, rows: Sequence[Mapping[str, Any]], column: str = "prompt") -> list[dict[str, Any]]:
        """One completion a row, drawn from the present policy under the prompt in `column`.

        Returns:
            For each row `prompt_ids` and `completion_ids` (the end token included).

        """
        prompts = self.tokenize([row[column] for row in rows])
        completions = self._generate_single_turn(prompts, None, {}, 1)[0]
        return [{"prompt_ids": p, "completion_ids": c} for p, c in zip(prompts, completions, strict=True)]

    def grade(self, rows: Sequence[Mapping[str, Any]], completion_ids: Sequence[Sequence[int]]) -> list[float]:
        """Weighted reward of each of this rank's completions; NaN where no function could score it."""
        texts = self.processing_class.batch_decode(completion_ids, skip_special_tokens=True)
        if not isinstance(rows[0]["prompt"], str):
            texts = [[{"role": "assistant", "content": text}] for text in texts]
        with self.aside():
            per_func = GRPOTrainer._calculate_rewards(
                self, list(rows), [r["prompt"] for r in rows], texts, completion_ids
            )
        start = self.accelerator.process_index * len(rows)
        return self.weighted(per_func)[start : start + len(rows)].tolist()

    def weighted(self, per_func: torch.Tensor) -> torch.Tensor:
        """(B,) weighted sum of rewards (B, F); NaN where no function could score the rollout."""
        total = (per_func * self.reward_weights.to(per_func.device)).nansum(1)
        return total.masked_fill(per_func.isnan().all(1), torch.nan)

    @torch.no_grad()
    def collect(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Roll out and grade one completion a row with the present policy, without hooks; the same on every rank.

        Its tokens are charged to `generated_tokens`; random state, metrics and TRL's counters stay as they were.

        Args:
            rows: data-set rows; repeat a row to get several rollouts of it. With several processes their number has to
                be a multiple of the number of processes.

        Returns:
            For each row `reward` (NaN: unscorable), `completion` (text) and `completion_ids`.

        """
        ranks, size = self.accelerator.num_processes, self.args.generation_batch_size
        if len(rows) % ranks:
            raise ValueError(f"collect: {len(rows)} rows do not divide over {ranks} processes.")
        found: list[dict[str, Any]] = []
        with self.aside():
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                share = len(part) // ranks
                mine = part[self.accelerator.process_index * share :][:share]
                ids = [got["completion_ids"] for got in self.generate_rows(mine)]
                texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
                rewards = self.grade(mine, ids)
                keys = ("reward", "completion", "completion_ids")
                found += gather_object([dict(zip(keys, x, strict=True)) for x in zip(rewards, texts, ids, strict=True)])
        self.generated_tokens += sum(len(x["completion_ids"]) for x in found)
        return found

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Roll out or grade without a trace: metrics, logs, token counts, mode and random state are put back."""
        kept = {name: copy.deepcopy(getattr(self, name)) for name in TRACES}
        seen, generated, training = self.state.num_input_tokens_seen, self.generated_tokens, self.model.training
        python, numpy = random.getstate(), np.random.get_state()
        device = self.accelerator.device
        self.model.train()  # as TRL generates: dropout, if there is any, acts as it does in training
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=True):
                yield
        finally:
            for name, value in kept.items():
                setattr(self, name, value)
            random.setstate(python)
            np.random.set_state(numpy)
            self.state.num_input_tokens_seen, self.generated_tokens = seen, generated
            self.model.train(training)

"""What hooks may call on the trainer beside `shared.py`: generate, score, grade, collect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from rlkit.trainers.shared import Shared


class Tools(Shared, GRPOTrainer):
    """Helpers for hooks; mixed into `RLVRTrainer`."""

    uncharged_tokens: int

    def generate_rows(
        self, rows: Sequence[Mapping[str, Any]], column: str = "prompt", begin: Sequence[Sequence[int]] | None = None
    ) -> list[dict[str, Any]]:
        """One completion a row, drawn from the present policy under the prompt in `column`; charged to the token count.

        Args:
            rows: with the prompt, a text or chat messages.
            column: where the prompt is.
            begin: for each row the token ids that its completion begins with; the policy goes on from there. They are
                part of `completion_ids`, and only what is drawn is charged. A completion is cut at
                `max_completion_length`.

        Returns:
            For each row `prompt_ids` and `completion_ids` (the end token included); with vLLM also `logprobs`.

        """
        if not rows:
            return []
        prompts = self.tokenize([row[column] for row in rows])
        heads = [list(head) for head in begin] if begin is not None else [[] for _ in rows]
        under = [prompt + head for prompt, head in zip(prompts, heads, strict=True)]
        self.check_room(max(map(len, prompts if begin is None else under)))
        completions, logprobs = self._generate_single_turn(under, None, {}, 1)  # vLLM takes one prompt in so many
        self.uncharged_tokens += sum(map(len, completions))
        longest = self.max_completion_length
        whole = [(head + drawn)[:longest] for head, drawn in zip(heads, completions, strict=True)]
        got = [{"prompt_ids": p, "completion_ids": c} for p, c in zip(prompts, whole, strict=True)]
        if logprobs is None or begin is not None:
            return got
        return [{**row, "logprobs": lp} for row, lp in zip(got, logprobs, strict=True)]

    @torch.no_grad()
    def score(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs and entropies (nats) of completions under prompts, by the present policy at the run's temperature.

        Returns:
            Two tensors (B, T), T the longest completion; 0 behind the end of a completion.

        """
        prompts, prompt_mask = self._padded(prompt_ids, "left")
        completions, mask = self._padded(completion_ids, "right")
        logps, entropies = self._get_per_token_logps_and_entropies(
            self.model,
            torch.cat([prompts, completions], 1),
            torch.cat([prompt_mask, mask], 1),
            mask.size(1),
            batch_size=self.args.per_device_train_batch_size,
            compute_entropy=True,
        )[:2]
        longest = max(map(len, completion_ids))
        return (logps * mask)[:, :longest], (entropies * mask)[:, :longest]

    def grade(self, rows: Sequence[Mapping[str, Any]], completion_ids: Sequence[Sequence[int]]) -> list[float]:
        """Weighted reward of each of this rank's completions; NaN where no function could score it.

        A reward with memory is told not to learn. Every rank has to call it as often, with as many rows.
        """
        texts = self.processing_class.batch_decode(completion_ids, skip_special_tokens=True)
        if not isinstance(rows[0]["prompt"], str):
            texts = [[{"role": "assistant", "content": text}] for text in texts]
        prompts = [row["prompt"] for row in rows]
        with self.aside():
            per_func = GRPOTrainer._calculate_rewards(
                self, self.with_logps(rows, prompts, completion_ids), prompts, texts, completion_ids
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

    @property
    def learns(self) -> bool:
        """Whether what is graded now is trained on, so that memory may learn from it."""
        return self.model.training and not self._aside

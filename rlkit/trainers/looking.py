"""Looking at rollouts without training: what a step would see of each token, and the gradient of some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from trl import DistillationTrainer


class Looking(DistillationTrainer):
    """Helpers of `DistillTrainer` for notebooks and hooks."""

    @torch.no_grad()
    def examine(self, rows: Sequence[Mapping[str, Any]], seed: int = 0) -> dict[str, Any]:
        """Roll out the present student on data-set rows, one completion a row, and score every token.

        Metrics, token counts and random state stay as they were.

        Args:
            rows: with `prompt`, and `teacher_prompt` where the teacher has one of its own.
            seed: of the sampling.

        Returns:
            `texts` (B,) and `tokens`, a list of texts a row; and tensors (B, T) that are 0 behind the end of a
            completion: `mask`, `completion_ids`, `logps`, `entropies`, and with a teacher `teacher_logps`,
            `teacher_entropies`, `divergence` (reverse KL) and `forward` (forward KL), in nats.

        """
        with self.aside():
            torch.manual_seed(seed)
            batch = self._generate_and_score_completions([dict(row) for row in rows])
            student = self.accelerator.unwrap_model(self.model)
            scores = self._score(self._states(student, batch), batch, forward=True)
        lengths = batch["completion_mask"].sum(1).tolist()
        ids = [row[:n].tolist() for row, n in zip(batch["completion_ids"], lengths, strict=True)]
        decode = self._tokenizer.decode
        words = {"tokens": [[decode([i]) for i in row] for row in ids]}
        texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
        tensors = {**batch, **scores, "mask": batch["completion_mask"]}
        return {**words, "texts": texts, **{k: v.cpu() for k, v in tensors.items() if isinstance(v, Tensor)}}

    def gradient_norm(self, seen: Mapping[str, Any], weight: Tensor, beta: float | None = None) -> float:
        """Norm of the gradient of sum(w d) / sum(w) in the student's trainable weights.

        Args:
            seen: what `examine` gave.
            weight: w (B, T) >= 0, such as the tokens of one kind.
            beta: the divergence as in TRL (1: reverse KL, 0: forward KL); default: what this trainer minimises.

        Raises:
            ValueError: no token has a weight.

        """
        device = self.accelerator.device
        batch = {name: value.to(device) for name, value in seen.items() if isinstance(value, Tensor)}
        weight = weight.to(device).float() * batch["mask"]
        if not (weight > 0).any():
            raise ValueError("No token has a weight above 0, so there is no gradient to look at.")
        student = self.accelerator.unwrap_model(self.model)
        loss, _ = self._kept_loss(student, self._states(student, batch), batch, weight, weight.sum(), beta)
        trained = [p for p in student.parameters() if p.requires_grad]
        found = torch.autograd.grad(loss, trained, allow_unused=True)
        return float(torch.stack([g.norm() for g in found if g is not None]).norm())

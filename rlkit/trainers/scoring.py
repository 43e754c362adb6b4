"""The seams `token_weight` and `pooled` in distillation: what each token is worth, before any gradient.

Where a method weighs tokens, the first micro-batch of an optimiser step has all micro-batches of the step scored, in
chunks and without gradient: the weights of the whole step have to be known, because their sum is what the loss is
divided by. The hidden states of the first micro-batch serve scoring and loss; with accumulation the student goes
forward once more over the others, the teacher does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from trl import DistillationTrainer

from rlkit import divergences
from rlkit.method import Context, Method
from rlkit.trainers import hook_checks, rows
from rlkit.trainers.heads import Head, chunks, head_of

Batch = dict[str, Any]
Scores = dict[str, Tensor]
"""By name (B, T), 0 outside the mask: logps, entropies, and with a teacher teacher_logps, teacher_entropies,
divergence (reverse KL), and forward (forward KL) where the method needs it."""


@dataclass
class States:
    """Last hidden states at the completion, (B, T, H), and the heads."""

    student: Tensor
    teacher: Tensor | None
    student_head: Head
    teacher_head: Head | None


def measure(student: Tensor, teacher: Tensor | None, tokens: Tensor, forward: bool) -> dict[str, Tensor]:
    """Log-prob of the token, entropy and divergences (R,) from logits (R, V) and tokens (R,)."""
    log_p = student.log_softmax(-1)
    here = tokens[:, None].clamp(max=log_p.size(1) - 1)
    p = log_p.exp()
    found = {"logps": log_p.gather(1, here)[:, 0], "entropies": -(p * log_p).sum(-1)}
    if teacher is None:
        return found
    log_q = teacher.log_softmax(-1)
    q = log_q.exp()
    found |= {"teacher_logps": log_q.gather(1, here)[:, 0], "teacher_entropies": -(q * log_q).sum(-1)}
    found["divergence"] = divergences.kl(log_p, log_q)
    if forward:
        found["forward"] = divergences.kl(log_q, log_p)
    return found


class Scoring(DistillationTrainer):
    """How `DistillTrainer` scores tokens and asks a method for their weights."""

    method: Method
    vocabulary: int

    def _states(self, student: Any, batch: Batch) -> States:
        """Hidden states of student and teacher; gradients reach the student's, where they are on."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        hidden = self._get_last_hidden_state(student, ids, mask, batch["completion_ids"].size(1))
        teacher, states = self._teacher(student), batch.pop("taught", None)
        if teacher is not None and states is None:
            states = self._taught(teacher, batch)
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        with torch.no_grad():
            heads = [None if m is None else head_of(m, self.vocabulary, dtype) for m in (student, teacher)]
        assert heads[0] is not None
        return States(hidden.to(dtype), None if states is None else states.to(dtype), heads[0], heads[1])

    @torch.no_grad()
    def _score(self, states: States, batch: Batch, forward: bool | None = None) -> Scores:
        """What the tokens of a micro-batch are like, in chunks of rows, so that logits never exist for all of them."""
        at = rows.loss_mask(batch).bool()
        hidden, tokens = states.student[at].detach(), batch["completion_ids"][at]
        taught = None if states.teacher is None else states.teacher[at]
        wanted = "forward" in self.method.needs if forward is None else forward
        parts = []
        for part in chunks(len(hidden), self.vocabulary, hidden.device):
            logits = states.student_head.logits(states.student_head.project(hidden[part]), self.temperature)
            others = None
            if taught is not None and states.teacher_head is not None:
                others = states.teacher_head.logits(states.teacher_head.project(taught[part]), self.temperature)
            parts.append(measure(logits, others, tokens[part], wanted))
        return {name: spread(torch.cat([part[name] for part in parts]), at) for name in (parts[0] if parts else {})}

    def _window(self, batch: Batch) -> list[Batch]:
        """The micro-batches of this optimiser step, this one included."""
        known = self._buffered_inputs or []
        return list(known) if any(part is batch for part in known) else [batch]

    def _weigh(self, student: Any, batch: Batch, states: States) -> None:
        """Give each micro-batch of the optimiser step its `weights` (B, T), and `weight_sum`, a rank's share of all."""
        window = self._window(batch)
        scores = []
        for part in window:
            if part is batch:
                scores.append(self._score(states, part))
                continue
            with torch.no_grad():
                other = self._states(student, part)
            scores.append(self._score(other, part))
            part["taught"] = other.teacher
        weights = self._pooled_weights(window, scores) if self.method.pooled else None
        if weights is None:
            weights = [self._weights(part, found) for part, found in zip(window, scores, strict=True)]
        masks = [rows.loss_mask(part).bool() for part in window]
        sums = [torch.stack([w.sum() for w in weights]).sum()]
        sums += [torch.stack([(w > 0).sum() for w in weights]).sum(), torch.stack([m.sum() for m in masks]).sum()]
        total, kept, every = self.accelerator.gather(torch.stack([x.float() for x in sums])[None]).sum(0)
        self._metrics["train"]["kept_share"].append((kept / every.clamp(min=1)).item())
        share = total / self.accelerator.num_processes
        for part, found, weight in zip(window, scores, weights, strict=True):
            part |= {"scores": found, "weights": weight, "weight_sum": share}

    def _weights(self, batch: Batch, scores: Scores) -> Tensor:
        """What the method gives for some rows, looked at."""
        assert self.method.token_weight is not None
        ctx = self._token_context(batch, scores)
        return hook_checks.check_weight(self.method.token_weight(ctx), ctx, self.method)

    def _token_context(self, batch: Batch, scores: Scores) -> Context:
        """What `token_weight` sees."""
        mask = rows.loss_mask(batch)
        width = torch.arange(mask.size(1), device=mask.device)
        named: Batch = {name: scores.get(name) for name in ("logps", "entropies", "divergence", "forward")}
        others: Batch = {name: scores[name] for name in ("teacher_logps", "teacher_entropies") if name in scores}
        extras: Batch = {**batch, **others, "positions": width.expand_as(mask), "vocabulary": self.vocabulary}
        return self.context(mask=mask, extras=extras, **named)

    def _pooled_weights(self, window: Sequence[Batch], scores: Sequence[Scores]) -> list[Tensor]:
        """Weights of this rank's micro-batches, worked out on those of all ranks."""
        keys = [k for k, v in window[0].items() if isinstance(v, Tensor) and v.ndim and k not in ("weights", "taught")]
        batch = {key: torch.cat([part[key] for part in window]) for key in keys}
        found = {name: torch.cat([part[name] for part in scores]) for name in scores[0]}
        size, width = batch["completion_ids"].shape
        sizes = [len(part["completion_ids"]) for part in window]
        if self.accelerator.num_processes == 1:
            return list(self._weights(batch, found).split(sizes))
        batch = {key: self.of_all_ranks(key, value) for key, value in batch.items()}
        found = {name: self.of_all_ranks(name, value) for name, value in found.items()}
        weights = self._weights(batch, found)
        start = self.accelerator.process_index * (len(weights) // self.accelerator.num_processes)
        return list(weights[start : start + size, :width].split(sizes))


def spread(values: Tensor, at: Tensor) -> Tensor:
    """(R,) values at the True places of (B, T), 0 elsewhere."""
    out = torch.zeros(at.shape, dtype=values.dtype, device=values.device)
    out[at] = values
    return out

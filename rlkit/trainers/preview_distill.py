"""Slow motion of a distillation step: what student and teacher say of each token, and what the loss does with it.

The step goes through the trainer's own loss. The push on a token is minus the derivative of that loss by the drawn
token's logit: a loss over whole distributions pushes all logits at a position, and this is the one that the strip can
show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlkit.steps.step import QUANTITIES, Step, StepRow
from rlkit.trainers.preview import Preview
from rlkit.trainers.reading import is_plain

if TYPE_CHECKING:
    from rlkit.trainers.distill import DistillTrainer

SCORES = {
    "logp": "logps",
    "entropy": "entropies",
    "divergence": "divergence",
    "teacher_logp": "teacher_logps",
}
"""Names in a step, and in scores."""


class DistillReading:
    """One optimiser step as it is being read."""

    def __init__(self, trainer: DistillTrainer) -> None:
        self.trainer = trainer
        self.loss = 0.0
        self.gradient = torch.empty(0)
        """(P,) of the loss by all trainable parameters, before clipping; there once `step` has been called."""
        self._parts: list[dict[str, Any]] = []

    def add(self, batch: dict[str, Any]) -> None:
        """Take one micro-batch through the loss."""
        trainer = self.trainer
        student = trainer.accelerator.unwrap_model(trainer.model)
        probe: dict[str, Any] = {}
        trainer._probe = probe
        try:
            with trainer.compute_loss_context_manager():
                loss, *_ = trainer._compute_loss(student, batch, self._items(batch))
        finally:
            trainer._probe = None
        loss.backward()
        self.loss += float(loss.detach())
        found = {name: probe["scores"][known] for name, known in SCORES.items() if known in probe["scores"]}
        self._parts.append({"batch": dict(batch), "total": probe["total"], **found, **probe["tokens"]})

    def _items(self, batch: dict[str, Any]) -> Tensor:
        """A rank's share of the tokens of the step, as TRL's `compute_loss` has it."""
        return batch["num_items_in_batch"].clamp(min=1.0) / self.trainer.accelerator.num_processes

    def drawn(self) -> tuple[list[dict[str, Any]], list[list[int]], tuple[int, ...]]:
        """The data-set rows, the token ids of their completions, and the sizes of the groups: one each."""
        found = {int(batch["group"][i]): ids for batch, i, ids in self._each()}
        return list(self.trainer._last), [found[n] for n in sorted(found)], (1,) * len(found)

    def _each(self) -> Iterator[tuple[dict[str, Any], int, list[int]]]:
        for part in self._parts:
            batch = part["batch"]
            for i, length in enumerate(batch["completion_mask"].sum(1).tolist()):
                yield batch, i, batch["completion_ids"][i, :length].tolist()

    def step(self, row_gradients: bool = True) -> Step:
        """What was read."""
        trainer = self.trainer
        trained = [p for p in trainer.model.parameters() if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        self.gradient, norm = torch.cat([g.flatten() for g in grads]), torch.stack([g.norm() for g in grads]).norm()
        read = [self._row(part, i, row_gradients) for part in self._parts for i in range(len(part["batch"]["group"]))]
        read.sort(key=lambda row: row.group)
        tokens = sum(len(row.tokens) for row in read)
        kept = sum(weight > 0 for row in read for weight in row.values["weight"])
        metrics = {"loss": self.loss, "grad_norm": float(norm), "kept_share": kept / max(1, tokens)}
        if all("divergence" in row.values for row in read):
            metrics["divergence"] = sum(sum(row.values["divergence"]) for row in read) / max(1, tokens)
        options = {**trainer.method.options, "beta": trainer.beta, "temperature": trainer.temperature}
        place = (trainer.method.name, "distill", trainer.state.global_step, trainer.args.seed)
        notes = [] if kept == tokens else [f"{kept} of {tokens} tokens are kept; the loss is their mean."]
        return Step(*place, options, metrics, read, notes)

    def _row(self, part: dict[str, Any], i: int, row_gradients: bool) -> StepRow:
        trainer, batch = self.trainer, part["batch"]
        tokenizer = trainer.processing_class
        columns = {name: value for name, value in trainer._last[int(batch["group"][i])].items() if is_plain(value)}
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
        ids = batch["completion_ids"][i, : int(batch["completion_mask"][i].sum())].tolist()
        values = {name: part[name][i, : len(ids)].tolist() for name in QUANTITIES if name in part}
        return StepRow(
            rollout=0,
            group=int(batch["group"][i]),
            prompt=columns.pop("prompt", None) or tokenizer.decode(prompt),
            completion=tokenizer.decode(ids, skip_special_tokens=True),
            prompt_ids=prompt,
            completion_ids=ids,
            tokens=[tokenizer.decode([token]) for token in ids],
            reward=None,
            trained=any(values["weight"]),
            grad_norm=self._row_norm(part, i) if row_gradients else None,
            values=values,
            extras=columns,
        )

    def _row_norm(self, part: dict[str, Any], i: int) -> float:
        """Norm of the gradient of one row's part of the loss."""
        trainer, size = self.trainer, len(part["batch"]["group"])
        weight = part["weight"][i : i + 1]
        if not weight.any():
            return 0.0
        one: dict[str, Any] = {
            k: v[i : i + 1] for k, v in part["batch"].items() if isinstance(v, Tensor) and v.shape[:1] == (size,)
        }
        one = {**one, "scores": {name: values[i : i + 1] for name, values in part["batch"].get("scores", {}).items()}}
        student = trainer.accelerator.unwrap_model(trainer.model)
        with trainer.compute_loss_context_manager():
            loss, _ = trainer._kept_loss(student, trainer._states(student, one), one, weight, part["total"])
        trained = [p for p in student.parameters() if p.requires_grad]
        grads = torch.autograd.grad(loss, trained, allow_unused=True)
        return float(torch.stack([g.norm() for g in grads if g is not None]).norm())


class DistillPreview(Preview):
    """What `DistillTrainer` shows of a step."""

    _last: Any
    reading = DistillReading

    def _rows_for(self, prompts: Any) -> list[dict[str, Any]]:
        """Data-set rows of this rank, one a rollout."""
        parts = self.args.gradient_accumulation_steps
        size, ranks = self.args.per_device_train_batch_size * parts, self.accelerator.num_processes
        found = self._first_rows(size * ranks) if prompts is None else self._chosen_rows(prompts)
        if not found or len(found) % (parts * ranks):
            raise ValueError(
                f"{len(found)} prompts do not divide into {parts * ranks} micro-batches (gradient_accumulation_steps x "
                "processes): give more than none, and a multiple of them."
            )
        share = len(found) // ranks
        return found[self.accelerator.process_index * share :][:share]

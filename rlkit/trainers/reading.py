"""Reads the micro-batches of an optimiser step into a `Step`.

That takes one forward for what the policy says of each token, one forward and backward through TRL's loss, and one more
of each for the gradient norm of a row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlkit.steps.step import QUANTITIES, Step, StepRow
from rlkit.trainers import rows
from rlkit.trainers.coefficients import ROW_INDEX

if TYPE_CHECKING:
    from rlkit.trainers.rlvr import RLVRTrainer

LOSS_OPTIONS = ("loss_type", "scale_rewards", "num_generations", "num_iterations", "beta", "epsilon", "temperature")
"""TRL options that a reader of a step wants to know."""
LOGGED = ("reward", "frac_reward_zero_std", "frac_reward_unscorable")
REWARD = "reward/"
"""Before the name of a reward function, where there are several."""
OWN = frozenset({"reward", "group", "rollout", "counted", "age", "advantages", "drawn_at"})
"""Numbers of a row that a `StepRow` has a field for, or that are the trainer's own."""


class Reading:
    """One optimiser step as it is being read."""

    def __init__(self, trainer: RLVRTrainer) -> None:
        self.trainer = trainer
        self.loss = 0.0
        self.gradient = torch.empty(0)
        """(P,) of the loss by all trainable parameters, before clipping; there once `step` has been called."""
        self._parts: list[dict[str, Any]] = []

    def add(self, batch: rows.Batch) -> None:
        """Take one micro-batch through the loss."""
        trainer, (size, width) = self.trainer, batch["completion_ids"].shape
        batch[ROW_INDEX] = torch.arange(size, device=batch["completion_ids"].device)
        with torch.no_grad():
            logps, entropies = trainer.policy_on(batch)
        trainer._probe = probe = Probe()
        try:
            with trainer.compute_loss_context_manager():
                loss = trainer._compute_loss(trainer.model, batch)
        finally:
            trainer._probe = None
            del batch[ROW_INDEX]
        loss.backward()
        self.loss += float(loss.detach())
        found = {**probe.found(size, width), "logp": logps, "entropy": entropies}
        if "weights" in batch:  # a pooled method has seen all rows, the probe only those that are trained
            found["weight"] = batch["weights"]
        A = batch["advantages"]
        found["old_logp"] = rows.old_logps(batch, logps, trainer.state.global_step)
        found["ratio"] = (logps - found["old_logp"]).exp()
        found["advantage"] = (A[:, None] if A.ndim == 1 else A).expand_as(logps)
        self._parts.append({"batch": dict(batch), **found})

    def step(self, row_gradients: bool = True) -> Step:
        """What was read."""
        trainer = self.trainer
        zero = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        self.gradient = torch.cat([g.detach().flatten() for g in zero])
        found = [pair for part in self._parts for pair in self._rows(part, row_gradients)]
        found.sort(key=lambda pair: pair[0])
        numbers: dict[Any, int] = {}
        read = [dataclasses.replace(row, group=numbers.setdefault(place[:2], len(numbers))) for place, row in found]
        logged = {name: values[-1] for name, values in trainer._metrics["train"].items() if values}
        metrics = {"loss": self.loss, "grad_norm": float(self.gradient.norm())}
        metrics |= {name: logged[name] for name in LOGGED if name in logged}
        options = {**trainer.method.options, **{name: getattr(trainer.args, name) for name in LOSS_OPTIONS}}
        place = (trainer.method.name, "rlvr", trainer.state.global_step, trainer.args.seed)
        return Step(*place, options, metrics, read, list(notes(read)))

    @property
    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self.trainer.model.parameters() if p.requires_grad]

    def _rows(self, part: dict[str, Any], row_gradients: bool) -> Iterator[tuple[tuple[int, int, int], StepRow]]:
        """The rows of a micro-batch, each with where it belongs: (age, group, rollout)."""
        batch, size = part["batch"], part["batch"]["counted"].shape
        for i in range(len(batch["counted"])):
            numbers = {k: v[i].item() for k, v in batch.items() if isinstance(v, Tensor) and v.shape == size}
            age = int(numbers.get("age", 0)) or None
            norm = self._row_norm(part, i) if row_gradients else None
            # Old rows that joined a batch are groups apart; those that joined a group before its rewards are not.
            apart = 0 if "replayed" in numbers else age or 0
            yield (apart, int(numbers["group"]), int(numbers["rollout"])), self._row(part, i, numbers, age, norm)

    def _row(
        self, part: dict[str, Any], i: int, numbers: dict[str, Any], age: int | None, norm: float | None
    ) -> StepRow:
        trainer, batch = self.trainer, part["batch"]
        tokenizer = trainer.processing_class
        columns = trainer.columns_of(int(numbers["rollout"]), batch, i, age)
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
        length = int(batch["completion_mask"][i].sum())
        ids = columns.pop("completion_ids", None) or batch["completion_ids"][i, :length].tolist()
        values = {name: part[name][i, : len(ids)].tolist() for name in QUANTITIES if name in part}
        reward, advantages = numbers.get("reward", math.nan), values["advantage"]
        per_function = {name.removeprefix(REWARD): v for name, v in numbers.items() if name.startswith(REWARD)}
        own = {name: value for name, value in numbers.items() if name not in OWN and name not in per_function}
        return StepRow(
            group=0,
            prompt=columns.pop("prompt", None) or tokenizer.decode(prompt),
            completion=tokenizer.decode(ids, skip_special_tokens=True),
            prompt_ids=prompt,
            completion_ids=ids,
            tokens=[tokenizer.decode([token]) for token in ids],
            reward=None if math.isnan(reward) else reward,
            rewards=per_function,
            advantage=sum(advantages) / max(1, len(advantages)),
            counted=bool(batch["counted"][i]),
            trained=any(values["coefficient"]),
            grad_norm=norm,
            age=age,
            values=values,
            extras={**columns, **{k: v for k, v in own.items() if not k.startswith(REWARD)}},
        )

    def _row_norm(self, part: dict[str, Any], i: int) -> float:
        """Norm of the gradient of one row's part of the loss: of its log-probs times the push on each."""
        push, by_entropy = part["coefficient"][i], part["by_entropy"][i]
        if not (push.any() or by_entropy.any()):
            return 0.0
        trainer = self.trainer
        one = rows.take(part["batch"], torch.tensor([i], device=push.device))
        one = rows.trim(one, trainer._padding_is_free)
        with trainer.compute_loss_context_manager():
            logps, entropies = trainer.policy_on(one)
        T = logps.size(1)
        total = -(push[:T] * logps[0]).sum()
        if by_entropy.any():
            total = total + (by_entropy[:T] * entropies[0]).sum()
        grads = torch.autograd.grad(total, self._parameters, allow_unused=True)
        return float(torch.stack([g.norm() for g in grads if g is not None]).norm())


class Probe:
    """Keeps the tensors between the policy and TRL's loss of one micro-batch, so that gradients arrive at them."""

    live: rows.Batch
    logps: Tensor
    entropies: Tensor | None

    def take(self, live: rows.Batch, logps: Tensor, entropies: Tensor | None) -> None:
        """Called between the policy's forward and TRL's loss; the advantages become one a token."""
        A = live["advantages"]
        A = (A[:, None] if A.ndim == 1 else A).expand_as(logps)
        live["advantages"] = A if A.requires_grad else A.clone().requires_grad_()
        self.live, self.logps, self.entropies = live, logps, entropies
        for tensor in (logps, live["advantages"], entropies):
            if tensor is not None and tensor.requires_grad:
                tensor.retain_grad()

    def found(self, size: int, width: int) -> dict[str, Tensor]:
        """`coefficient`, `loss`, `by_entropy` and, of weighted tokens, `weight`, in the rows of the micro-batch."""
        live = self.live
        mask, index = rows.loss_mask(live), live[ROW_INDEX]
        real = mask.bool().any(1)  # rows that only fill up are empty
        A = live["advantages"]
        got = {"coefficient": -_slope(self.logps), "loss": A.detach() * _slope(A)}
        got["by_entropy"] = torch.zeros_like(A) if self.entropies is None else _slope(self.entropies)
        if "weights" in live:
            got["weight"] = live["weights"]
        out = {}
        for name, values in got.items():
            out[name] = values.new_zeros(size, width)
            out[name][index[real], : values.size(1)] = (values * mask)[real]
        return {name: values.detach() for name, values in out.items()}


def _slope(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def notes(read: Sequence[StepRow]) -> Iterator[str]:
    """What a reader of the rows should know."""
    out = sum(not row.counted for row in read)
    flat = sum(row.counted and not row.trained for row in read)
    old = [row.age for row in read if row.age]
    if out:
        yield f"{out} of {len(read)} rollouts were taken out of the batch by the method."
    if flat:
        yield f"{flat} of {len(read)} rollouts push nothing: their advantage is 0."
    if old:
        yield f"{len(old)} of {len(read)} rollouts are replayed, {min(old)} to {max(old)} steps old."

"""The seams `token_weight`, `surrogate` and `pooled`: the coefficient of each token's gradient.

Whatever an objective s(log pi) is, one step sees only its derivative c = ds / d log pi, a number a token. It is taken
on a detached leaf and goes to TRL as (B, T) advantages with ratio 1, so that TRL's own loss, denominators and
accumulation do the rest. For s to be what TRL prints as its loss, the advantages are s + (c - s)(log pi - sg log pi):
their value is s, and the gradient of ratio times advantages is c.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from rlkit.method import Method
from rlkit.trainers import hook_checks, rows, seam_checks

POOLED = ("objective", "coefficients")
"""What a pooled method adds to a micro-batch."""


class Coefficients(GRPOTrainer):
    """How `RLVRTrainer` asks a method for coefficients: a micro-batch at a time, or once an optimiser step."""

    method: Method
    window_left: int
    """Micro-batches of the optimiser step that have their coefficients and are still to come."""

    def coefficients(self, logps: Tensor, entropies: Tensor, batch: rows.Batch) -> tuple[Tensor, Tensor]:
        """The objective at ratio 1 and the coefficient of the gradient of the log-probs, each (B, T).

        They are the weighted advantages, both, or the surrogate and its derivative.
        """
        method, advantages = self.method, batch["advantages"]
        advantages = (advantages[:, None] if advantages.ndim == 1 else advantages).expand_as(logps)
        mask = rows.loss_mask(batch) * batch["counted"][:, None]
        ctx = self.context(
            logps=logps,
            old_logps=rows.old_logps(batch, logps, self.state.global_step),
            entropies=entropies,
            advantages=advantages,
            mask=mask,
            extras=batch,
        )
        if method.token_weight is not None:
            advantages = advantages * hook_checks.check_weight(method.token_weight(ctx), ctx, method)
            ctx = dataclasses.replace(ctx, advantages=advantages)
        if method.surrogate is None:
            return advantages, advantages
        leaf = logps.clone().requires_grad_()
        with torch.enable_grad():
            objective = method.surrogate(dataclasses.replace(ctx, logps=leaf))
            objective = seam_checks.check_objective(objective, tuple(mask.shape), method)
            objective = objective.masked_fill(mask == 0, 0.0)
            (found,) = torch.autograd.grad(objective.sum(), leaf, allow_unused=True)
        objective = objective.detach()
        return objective, seam_checks.check_coefficients(objective, found, mask, method)

    def _pool(self) -> None:
        """At the start of an optimiser step, give each of its micro-batches its `objective` and `coefficients`."""
        if not self.window_left:
            count, parts = self.current_gradient_accumulation_steps, self._buffered_inputs
            window = [parts[(self._step + i) % len(parts)] for i in range(count)]
            sizes = [len(part["counted"]) for part in window]
            for name, values in zip(POOLED, self._pooled(window), strict=True):
                for part, own in zip(window, values.split(sizes), strict=True):
                    part[name] = own
            self.window_left = count
        self.window_left -= 1

    def _pooled(self, window: list[rows.Batch]) -> tuple[Tensor, Tensor]:
        """Objective and coefficients (B, T) of this rank's micro-batches, worked out on those of all ranks."""
        every = [key for key, value in window[0].items() if isinstance(value, Tensor) and value.ndim]
        batch = {key: torch.cat([part[key] for part in window]) for key in every if key not in POOLED}
        size, width = batch["completion_ids"].shape
        with torch.no_grad():
            logps, entropies = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1),
                width,
                batch_size=self.args.per_device_train_batch_size,
                compute_entropy=True,
            )[:2]
        if self.accelerator.num_processes == 1:
            return self.coefficients(logps, entropies, batch)
        scored = {"logps": logps, "entropies": entropies}
        whole = {key: self._of_all_ranks(key, value) for key, value in {**batch, **scored}.items()}
        whole["counted"] = whole["counted"].bool()
        logps, entropies = whole.pop("logps"), whole.pop("entropies")
        objective, found = self.coefficients(logps, entropies, whole)
        start = self.accelerator.process_index * (len(found) // self.accelerator.num_processes)
        return objective[start : start + size, :width], found[start : start + size, :width]

    def _of_all_ranks(self, key: str, value: Tensor) -> Any:
        """A tensor's rows of all ranks, padded to the longest and the most; rows that are padding do not count."""
        value = value.int() if value.dtype == torch.bool else value
        wide = self.accelerator.pad_across_processes(value, dim=1, pad_first=key in rows.PROMPT_KEYS)
        return self.accelerator.gather(self.accelerator.pad_across_processes(wide, dim=0))

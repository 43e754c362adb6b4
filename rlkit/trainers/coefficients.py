"""The seams `token_weight`, `surrogate` and `pooled`: the coefficient of each token's gradient.

Whatever an objective s(log pi) is, one step sees only its derivative c = ds / d log pi, a number a token. It is taken
on a detached leaf and goes to TRL as (B, T) advantages with ratio 1, so that TRL's own loss, denominators and
accumulation do the rest. For s to be what TRL prints as its loss, the advantages are s + (c - s)(log pi - sg log pi):
their value is s, and the gradient of ratio times advantages is c.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from trl import GRPOTrainer

from rlkit.method import Method
from rlkit.trainers import hook_checks, rows, seam_checks

POOLED = ("objective", "coefficients", "weights")
"""What a pooled method adds to a micro-batch; `weights` where it has `token_weight`."""
ROW_INDEX = "row_index"
"""Set on a micro-batch that is being looked at: where its rows stand in it."""
NOT_SHARED = (*POOLED, ROW_INDEX)


class Coefficients(GRPOTrainer):
    """How `RLVRTrainer` asks a method for coefficients: a micro-batch at a time, or once an optimiser step."""

    method: Method
    window_left: int
    """Micro-batches of the optimiser step that have their coefficients and are still to come."""

    def coefficients(self, logps: Tensor, entropies: Tensor, batch: rows.Batch) -> dict[str, Tensor]:
        """The `objective` at ratio 1 and the `coefficients` of the gradient of the log-probs, each (B, T).

        They are the weighted advantages, both, or the surrogate and its derivative. `weights` (B, T) are given where
        the method weights tokens.
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
        found = {}
        if method.token_weight is not None:
            found["weights"] = hook_checks.check_weight(method.token_weight(ctx), ctx, method)
            advantages = advantages * found["weights"]
            ctx = dataclasses.replace(ctx, advantages=advantages)
        if method.surrogate is None:
            return {**found, "objective": advantages, "coefficients": advantages}
        leaf = logps.clone().requires_grad_()
        with torch.enable_grad():
            objective = method.surrogate(dataclasses.replace(ctx, logps=leaf))
            objective = seam_checks.check_objective(objective, tuple(mask.shape), method)
            objective = objective.masked_fill(mask == 0, 0.0)
            (slope,) = torch.autograd.grad(objective.sum(), leaf, allow_unused=True)
        objective = objective.detach()
        slope = seam_checks.check_coefficients(objective, slope, mask, method)
        return {**found, "objective": objective, "coefficients": slope}

    def _pool(self) -> None:
        """At the start of an optimiser step, give each of its micro-batches its `objective` and `coefficients`."""
        if not self.window_left:
            count, parts = self.current_gradient_accumulation_steps, self._buffered_inputs
            window = [parts[(self._step + i) % len(parts)] for i in range(count)]
            sizes = [len(part["counted"]) for part in window]
            for name, values in self._pooled(window).items():
                for part, own in zip(window, values.split(sizes), strict=True):
                    part[name] = own
            self.window_left = count
        self.window_left -= 1

    def _pooled(self, window: list[rows.Batch]) -> dict[str, Tensor]:
        """`coefficients` of this rank's micro-batches, worked out on those of all ranks."""
        every = [key for key, value in window[0].items() if isinstance(value, Tensor) and value.ndim]
        batch = {key: torch.cat([part[key] for part in window]) for key in every if key not in NOT_SHARED}
        size, width = batch["completion_ids"].shape
        with torch.no_grad():
            logps, entropies = self.policy_on(batch)
        if self.accelerator.num_processes == 1:
            return self.coefficients(logps, entropies, batch)
        scored = {"logps": logps, "entropies": entropies}
        whole = {key: self.of_all_ranks(key, value) for key, value in {**batch, **scored}.items()}
        whole["counted"] = whole["counted"].bool()
        logps, entropies = whole.pop("logps"), whole.pop("entropies")
        found = self.coefficients(logps, entropies, whole)
        start = self.accelerator.process_index * (len(logps) // self.accelerator.num_processes)
        return {name: values[start : start + size, :width] for name, values in found.items()}

    def policy_on(self, batch: rows.Batch) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies (B, T) of the present policy on a micro-batch, at the run's temperature."""
        return self._get_per_token_logps_and_entropies(
            self.model,
            torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1),
            torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1),
            batch["completion_ids"].size(1),
            batch_size=self.args.per_device_train_batch_size,
            compute_entropy=True,
        )[:2]

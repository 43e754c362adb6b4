"""Seams at loss time: coefficients reach TRL's loss, and rows without any stay out of forward and backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rlkit.trainers import rows
from rlkit.trainers.coefficients import Coefficients


class LossSeams(Coefficients):
    """What `RLVRTrainer` does with a micro-batch around TRL's loss."""

    skips_rows: bool
    trained_tokens: int
    generated_tokens: int
    rows_of_this_step: int
    gradient_is_due: bool
    _live: rows.Batch | None
    record_steps: frozenset[int]
    _aside: bool
    _probe: Any
    _seen: list[rows.Batch]

    @property
    def records(self) -> bool:
        """Whether the optimiser step under way is to be kept."""
        return not self._aside and self.state.global_step in self.record_steps

    def _skipping_is_exact(self) -> bool:
        """Whether a row of advantage 0 adds nothing to the objective, and nothing that others are compared with.

        Hooks may compare rows of a micro-batch; pooled ones have done so before rows are left out.
        """
        compares = self.method.token_weight is not None or self.method.surrogate is not None
        return (
            self.beta == 0
            and not self._entropy_bonus_enabled
            and not self.aux_loss_enabled
            and self.top_entropy_quantile >= 1
            and self.off_policy_mask_threshold is None
            and (not compares or self.method.pooled)
            and not self._is_vlm  # images are not indexed by row
        )

    def _compute_loss(self, model: torch.nn.Module, inputs: rows.Batch) -> Tensor:
        if "counted" not in inputs:  # evaluation
            return super()._compute_loss(model, inputs)
        if self.records:
            self.note(inputs)
        if self.method.pooled:
            self._pool()
            inputs = {**inputs, "advantages": inputs["objective"]}
        chosen, trained = self._choose(inputs)
        # Also where this micro-batch loses no row: others of the generation batch may, and they share a denominator.
        factor = rows.row_factor(self.loss_type, inputs, chosen, inputs["counted_per_micro_batch"])
        self._live = chosen = dict(chosen)
        try:
            with self._metrics_of_trained_rows(trained):
                loss = super()._compute_loss(model, chosen)
        finally:
            self._live = None
        return loss if factor is None else loss * factor

    def _choose(self, inputs: rows.Batch) -> tuple[rows.Batch, int]:
        """The rows to train, as many on every rank (TRL gathers a value a row), and how many are real on all ranks."""
        live = inputs["counted"]
        carrying = live & rows.carries_gradient(inputs)
        self.gradient_is_due |= self._nothing_else_decides(inputs) and bool(carrying.any())
        live = carrying if self.skips_rows else live
        tokens = rows.loss_mask(inputs)[live].sum()
        counts = self.accelerator.gather(torch.stack([live.sum(), tokens, torch.full_like(tokens, len(live))])[None])
        trained, tokens, every = counts.sum(0).tolist()
        self._count(trained, tokens, every)
        if trained == every and not self.skips_rows and len(counts[:, 2].unique()) == 1:
            return inputs, trained
        if self._is_vlm:
            return rows.silence(inputs, live), trained
        index = live.nonzero().flatten()
        fullest = max(1, int(counts[:, 0].max()))
        filled = torch.cat([index, index.new_zeros(fullest - len(index))])
        chosen = rows.silence(rows.take(inputs, filled), torch.arange(fullest, device=live.device) < len(index))
        return (rows.trim(chosen, self._padding_is_free) if self.skips_rows else chosen), trained

    def _nothing_else_decides(self, inputs: rows.Batch) -> bool:
        """Whether a row with an advantage has a gradient for sure: no old log-probs to clip by, no weight of 0."""
        hooked = self.method.token_weight is not None or self.method.surrogate is not None
        return "old_per_token_logps" not in inputs and (not hooked or self.method.pooled)

    def _count(self, trained: int, tokens: int, every: int) -> None:
        """Add to the counters and log them."""
        self.rows_of_this_step += trained
        self.trained_tokens += tokens
        metrics = self._metrics["train"]
        metrics["generated_tokens"], metrics["trained_tokens"] = [self.generated_tokens], [self.trained_tokens]
        metrics["rows_left_out"].append(1 - trained / every)

    @property
    def _padding_is_free(self) -> bool:
        """Whether log-probs do not depend on how far a prompt is padded on the left: true with rotary positions.

        TRL passes no position ids, so a model with learned absolute positions sees them shifted by the padding.
        """
        config = self.model.config.get_text_config()
        return self.pad_to_multiple_of is None and bool(getattr(config, "rope_parameters", None))

    @contextmanager
    def _metrics_of_trained_rows(self, trained: int) -> Iterator[None]:
        """Name what TRL averages in the loss after the rows it saw; without any row there is nothing to average."""
        outer = self._metrics["train"]
        inner: dict[str, list[float]] = defaultdict(list)
        self._metrics["train"] = inner
        try:
            yield
        finally:
            self._metrics["train"] = outer
        if trained:
            own_clip = self.method.surrogate is not None  # TRL sees ratio 1: what it says of clipping is not so
            for name, values in inner.items():
                if own_clip and name.startswith("clip_ratio/"):
                    continue
                outer[f"{name}/trained_rows" if self.skips_rows else name].extend(values)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Any, Any]:
        out = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._live is None:
            return out
        if "drawn_at" in self._live and "old_per_token_logps" in self._live:
            # TRL reads these too, after this call.
            self._live["old_per_token_logps"] = rows.old_logps(self._live, out[0].detach(), self.state.global_step)
        if self.method.token_weight is not None or self.method.surrogate is not None:
            self._set_coefficients(out[0], out[1])
        if self._probe is not None:
            self._probe.take(self._live, out[0], out[1])
        return out

    def _set_coefficients(self, logps_BT: Tensor, entropies: Tensor) -> None:
        """Put what the method makes of the micro-batch where TRL's loss reads advantages and old log-probs."""
        live, method = self._live, self.method
        assert live is not None
        # TRL reads advantages and old log-probs after this call, and takes an advantage a token.
        logps = logps_BT.detach()
        if not method.pooled:
            live.update(self.coefficients(logps, entropies.detach(), live))
        # What a pooled method has left out is silenced in the advantages already.
        objective, found = live["advantages" if method.pooled else "objective"], live["coefficients"]
        if method.surrogate is not None:
            live["old_per_token_logps"] = logps
            objective = objective + (found - objective) * (logps_BT - logps)
        live["advantages"] = objective

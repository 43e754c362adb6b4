"""Seams at loss time: token weights, and rows that stay out of forward and backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from rlkit.method import Method
from rlkit.trainers import hook_checks, rows


class LossSeams(GRPOTrainer):
    """What `RLVRTrainer` does with a micro-batch around TRL's loss."""

    method: Method
    skips_rows: bool
    trained_tokens: int
    generated_tokens: int
    rows_of_this_step: int
    _live: rows.Batch | None

    def _skipping_is_exact(self) -> bool:
        """Whether a row of advantage 0 adds nothing to the objective, and nothing that others are compared with."""
        return (
            self.beta == 0
            and not self._entropy_bonus_enabled
            and not self.aux_loss_enabled
            and self.top_entropy_quantile >= 1
            and self.off_policy_mask_threshold is None
            and self.method.token_weight is None
            and not self._is_vlm  # images are not indexed by row
        )

    def _compute_loss(self, model: torch.nn.Module, inputs: rows.Batch) -> Tensor:
        if "counted" not in inputs:  # evaluation
            return super()._compute_loss(model, inputs)
        chosen, trained = self._choose(inputs)
        factor = None
        if chosen is not inputs:
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
        if self.skips_rows:
            live = live & rows.carries_gradient(inputs)
        tokens = rows.loss_mask(inputs)[live].sum()
        counts = self.accelerator.gather(torch.stack([live.sum(), tokens])[None])
        trained, tokens = counts.sum(0).tolist()
        every = len(live) * self.accelerator.num_processes
        self._count(trained, tokens, every)
        if trained == every and not self.skips_rows:
            return inputs, trained
        if self._is_vlm:
            return rows.silence(inputs, live), trained
        index = live.nonzero().flatten()
        fullest = max(1, int(counts[:, 0].max()))
        filled = torch.cat([index, index.new_zeros(fullest - len(index))])
        chosen = rows.silence(rows.take(inputs, filled), torch.arange(fullest, device=live.device) < len(index))
        return (rows.trim(chosen, self._padding_is_free) if self.skips_rows else chosen), trained

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
            for name, values in inner.items():
                outer[f"{name}/trained_rows" if self.skips_rows else name].extend(values)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Any, Any]:
        out = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._live is not None and self.method.token_weight is not None:
            # TRL reads the advantages after this call, and takes one a token.
            self._live["advantages"] = self._weighted_advantages(out[0].detach(), out[1].detach(), self._live)
        return out

    def _weighted_advantages(self, logps: Tensor, entropies: Tensor, batch: rows.Batch) -> Tensor:
        """(B, T) advantages times the method's token weights."""
        assert self.method.token_weight is not None
        advantages = batch["advantages"]
        advantages = (advantages[:, None] if advantages.ndim == 1 else advantages).expand_as(logps)
        old = batch.get("old_per_token_logps")
        ctx = self.context(
            logps=logps,
            old_logps=logps if old is None else old,
            entropies=entropies,
            advantages=advantages,
            mask=rows.loss_mask(batch),
            extras=batch,
        )
        return advantages * hook_checks.check_weight(self.method.token_weight(ctx), ctx, self.method)

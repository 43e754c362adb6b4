"""Staleness: train on rollouts that are s updates old, as an asynchronous system does.

No paper of its own: the knob that M2PO (arXiv 2510.01161) and others turn to compare ratios, which differ on stale
data only. Rollouts go through a first-in first-out queue; each keeps the advantages it had, and the log-probs of the
policy that drew it.

    update u trains the rollouts drawn before update u - s

What is different here, and why. Nothing runs side by side: rollouts are drawn as ever and wait. For the first s
updates there is nothing that old. Those train their fresh rollouts, which go into the queue too, so they are trained
twice, and the last s updates' worth of rollouts is never trained.
"""

from __future__ import annotations

from typing import Any

from rlkit.method import Method


def waiting(updates: int, accumulation: int, generate_every: int) -> int:
    """How many generation batches `updates` optimiser steps are.

    Args:
        updates: the age, at least 0.
        accumulation: micro-batches an update.
        generate_every: micro-batches a generation batch lasts.

    Raises:
        ValueError: that is no whole number of batches; the message has the nearest ages that are.

    """
    if updates < 0:
        raise ValueError(f"updates is an age, at least 0, not {updates}.")
    batches, rest = divmod(updates * accumulation, generate_every)
    if rest:
        near = [u for u in range(updates + generate_every + 1) if u * accumulation % generate_every == 0]
        below, above = max(u for u in near if u < updates), min(u for u in near if u > updates)
        raise ValueError(
            f"updates={updates}: a generation batch lasts {generate_every} micro-batches, {accumulation} an update, so "
            f"rollouts cannot be exactly that old. Nearest: {below} or {above}."
        )
    return batches


class Queue:
    """Generation batches that wait."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    def batch(self, trainer: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch that is old enough, in exchange for the fresh one; the fresh one while none is."""
        updates, accumulation = trainer.method.options["updates"], trainer.args.gradient_accumulation_steps
        length = waiting(updates, accumulation, trainer.generate_every)
        if not length:
            return batch
        self.batches.append(dict(batch))
        return batch if len(self.batches) <= length else self.batches.pop(0)

    def state_dict(self) -> dict[str, Any]:
        """The waiting batches."""
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.batches = list(state["batches"])


_queue = Queue()

STALE = Method(
    "stale",
    summary="rollouts are trained when they are some updates old; combine it with any method",
    parent="grpo",
    options={"updates": 8},
    reduces_to={"updates": 0},
    batch=_queue.batch,
    state=(_queue,),
    needs=frozenset({"logps"}),
)

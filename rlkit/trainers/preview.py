"""Slow motion: one optimiser step of the real trainer, looked at without being taken.

Rollouts, rewards and advantages come from the trainer's own generation, the loss from TRL's. Two facts make every token
visible without a copy of that loss. Its derivative by the log-probs is the push on each token. And a clipped objective
is proportional to the size of its advantage, so that a token's part of the loss is advantage times the derivative by
the advantage (Euler's theorem for homogeneous functions); KL and entropy terms are not in that part, but in the push.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import set_seed
from torch import Tensor
from transformers import Trainer

from rlkit.method import Method
from rlkit.steps.step import Step
from rlkit.trainers import checks, rows
from rlkit.trainers.reading import Reading
from rlkit.trainers.remember import remember
from rlkit.trainers.rollout import Generation

KEPT = (
    *("_step", "_buffered_inputs", "rows_of_this_step", "window_left", "gradient_is_due"),
    *("trained_tokens", "_sums", "_last"),
    *("_current_train_step_time", "current_gradient_accumulation_steps"),
    *("entropy_coef", "_last_world_entropy", "_entropy_window_stats"),
)
"""What a step moves in a trainer beside what `aside` puts back."""
ENTROPY = ("entropy_coef", "_last_world_entropy", "_entropy_window_stats")
"""What TRL's adaptive entropy bonus moves while it works out the loss."""


@dataclass(frozen=True)
class Source:
    """Where a step came from: what it takes to look at the same rollouts again."""

    trainer: Any
    rows: Sequence[Mapping[str, Any]]
    """Data-set rows, one a rollout."""
    completion_ids: Sequence[Sequence[int]]
    sizes: tuple[int, ...]
    """Rollouts of each prompt."""
    weights: float
    """Sum of the policy's trainable weights: another one means that it has been trained since."""


@torch.no_grad()
def sum_of_weights(model: torch.nn.Module) -> float:
    """Tells a policy from itself after an update."""
    return float(sum(p.double().sum() for p in model.parameters() if p.requires_grad))


class Preview(Trainer):
    """What `RLVRTrainer` shows of a step; `preview_distill.py` says what is different in distillation."""

    method: Method
    generated_tokens: int
    steps: dict[int, Step]
    """The steps that `record_steps` asked for, by number."""
    window_left: int
    sampler: Any
    _step: int
    _told: set[str]
    _given: Sequence[Sequence[int]] | None
    _seen: list[rows.Batch]
    _at_start: dict[str, Any]
    """What the entropy bonus was before the micro-batches of `_seen`."""
    _last: Generation | None
    reading: type[Any] = Reading

    def preview(self, prompts: Any = None, *, row_gradients: bool = True) -> Step:
        """One optimiser step in slow motion: everything of it but the update.

        Policy, optimizer, random state, memory of hooks, logs and data order are afterwards as if it had not run. It
        draws with the random state that a run starts with: before training, it is the first step of `train()`. With
        several processes each sees its own rows, and their loss and gradient.

        Args:
            prompts: None for the first prompts of the run's order; else rows of the training data, by number or as
                dicts with the same columns, each of which gets a group of `num_generations` rollouts.
            row_gradients: work out the gradient norm of each row: one more forward and backward a row.

        Raises:
            ValueError: prompts that are not rows, or whose number does not fit the batch.

        """
        if prompts is not None and self.method.sampler is not None:
            raise ValueError(
                f"Method {self.method.name!r} chooses prompts itself (sampler): call preview() without any."
            )
        return self.look(self._rows_for(prompts), row_gradients=row_gradients)[0]

    def look(
        self,
        inputs: Sequence[Mapping[str, Any]],
        completions: Sequence[Sequence[int]] | None = None,
        row_gradients: bool = True,
    ) -> tuple[Step, Tensor]:
        """The step on these rows, one a rollout, and its gradient (P,).

        Args:
            inputs: data-set rows, whole groups side by side.
            completions: token ids to use in place of drawing any.
            row_gradients: as for `preview`.
        """
        with self.untouched(), torch.enable_grad():
            set_seed(self.args.seed, device_specific=True)  # as a run starts
            torch.empty((), dtype=torch.int64).random_()  # the seed that the data loader of a run draws for itself
            self._step, self._buffered_inputs, self.window_left = 0, None, 0
            self._given = completions
            self.state.max_steps = self.state.max_steps or self.args.max_steps
            self.current_gradient_accumulation_steps = self.args.gradient_accumulation_steps
            reading = self.reading(self)
            for number in range(self.args.gradient_accumulation_steps):
                self._step = number
                reading.add(self._prepare_inputs([dict(row) for row in inputs]))
            step = reading.step(row_gradients)
            drawn, ids, sizes = reading.drawn()
            source = Source(self, drawn, ids, sizes, sum_of_weights(self.model))
        return dataclasses.replace(step, source=source), reading.gradient

    def record(self) -> None:
        """Keep the optimiser step under way, whose micro-batches have all gone through the loss."""
        with self.untouched():
            for name, value in self._at_start.items():
                setattr(self, name, value)
            self.window_left = len(self._seen)  # a pooled method has its coefficients already
            reading = self.reading(self)
            for batch in self._seen:
                reading.add(batch)
            self.steps[self.state.global_step] = reading.step()
        self._seen = []

    def note(self, batch: rows.Batch) -> None:
        """Called with each micro-batch of a step that is kept, before its loss is worked out."""
        if not self._seen:
            self._at_start = {name: getattr(self, name) for name in ENTROPY if hasattr(self, name)}
        self._seen.append(batch)

    def _rows_for(self, prompts: Any) -> list[dict[str, Any]]:
        """Data-set rows, one a rollout, of this rank."""
        size = self.args.per_device_train_batch_size * self.args.steps_per_generation
        checks.check_one_generation(self.args)
        if prompts is None:
            return self._first_rows(size * self.accelerator.num_processes)[self.here(size)]
        found = self._chosen_rows(prompts)
        count = len(found) * self.num_generations
        parts = self.args.steps_per_generation * self.accelerator.num_processes
        if not found or count % parts:
            raise ValueError(
                f"{len(found)} prompts x {self.num_generations} rollouts do not divide into the {parts} micro-batches "
                f"of a generation batch: give more than none, and a multiple of {parts} rollouts."
            )
        every = [row for row in found for _ in range(self.num_generations)]
        return every[self.here(count // self.accelerator.num_processes)]

    def _first_rows(self, count: int) -> list[dict[str, Any]]:
        """The first rows of the run's order, of all ranks."""
        sampler = self.sampler
        order = iter(self._get_train_sampler())
        self.sampler = sampler
        return [self.train_dataset[next(order)] for _ in range(count)]

    def _row(self, prompt: Any) -> dict[str, Any]:
        data = self.train_dataset
        if isinstance(prompt, numbers.Integral) and not isinstance(prompt, bool) and 0 <= int(prompt) < len(data):
            return data[int(prompt)]
        if isinstance(prompt, Mapping) and set(data.column_names) <= set(prompt):
            return dict(prompt)
        raise ValueError(
            f"preview(prompts=...) takes rows of the training data: numbers from 0 to {len(data) - 1}, or dicts with "
            f"the columns {', '.join(data.column_names)} (rewards read them), not {prompt!r:.80}."
        )

    def _chosen_rows(self, prompts: Any) -> list[dict[str, Any]]:
        if isinstance(prompts, str | Mapping) or not hasattr(prompts, "__iter__"):
            raise ValueError(f"preview(prompts=...) takes a list of rows, for example [0, 1], not {prompts!r:.80}.")
        return [self._row(prompt) for prompt in prompts]

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """`aside`, and further: memory of hooks, counters, buffered rollouts and gradients are put back too."""
        kept = {name: getattr(self, name) for name in KEPT if hasattr(self, name)}
        restore, steps = remember(list(self.method.state)), self.state.max_steps
        told, grads = set(self._told), [(p, p.grad) for p in self.model.parameters()]
        for p, _ in grads:
            p.grad = None
        try:
            with self.aside():
                yield
        finally:
            self._given = None
            for p, grad in grads:
                p.grad = grad
            restore()
            for name in KEPT:
                if name in kept:
                    setattr(self, name, kept[name])
                elif name in vars(self):
                    delattr(self, name)
            self._told, self.state.max_steps = told, steps

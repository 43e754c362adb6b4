"""The callback of `RLVRTrainer`: epochs, save points, adapters that do not move, runs that learn nothing."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import set_seed
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import has_length

from rlkit.trainers import checks

if TYPE_CHECKING:
    from rlkit.trainers.rlvr import RLVRTrainer

logger = logging.getLogger(__name__)

SILENT_STEPS = 2
"""Steps in a row without any gradient, although there were advantages, that are no chance: two rows can cancel."""


class Watch(TrainerCallback):
    """Looks after one trainer."""

    def __init__(self, trainer: RLVRTrainer) -> None:
        self.trainer = trainer
        self._before: dict[str, torch.Tensor] | None = None
        self._seen_moving = False
        self._silent = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **about: Any
    ) -> None:
        """Start from the seed, and refuse save points from which a run could not be resumed exactly."""
        self.trainer.start_over()
        checks.check_recorded(self.trainer.record_steps, state.max_steps)
        if not state.global_step:
            # TRL seeds when it is built: whatever drew random numbers since then would change the run.
            set_seed(args.seed, device_specific=True)
        loader = about.get("train_dataloader")
        batches = len(loader) if loader is not None and has_length(loader) else 0
        check_save_points(self.trainer, state, batches)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **about: Any
    ) -> None:
        """Tell the sampler its epoch: after a resume in mid-epoch on several ranks nobody else does."""
        if self.trainer.sampler is not None:
            self.trainer.sampler.set_epoch(int(state.epoch or 0))

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **about: Any
    ) -> None:
        """Keep the step if it is to be kept; remember the adapters before the first step that should move them."""
        if self.trainer.records:
            self.trainer.record()
        self._check_gradient()
        rate = max(group["lr"] for group in self.trainer.optimizer.param_groups)
        if self._seen_moving or not self.trainer.rows_of_this_step or rate == 0:
            return
        self._before = {name: p.detach().clone() for name, p in adapters(self.trainer.model)}

    def _check_gradient(self) -> None:
        """Raise ValueError where rows with advantages gave no gradient at all, or none to half of the adapters."""
        due, self.trainer.gradient_is_due = getattr(self.trainer, "gradient_is_due", False), False
        if not due or self.trainer.is_deepspeed_enabled:  # DeepSpeed keeps gradients elsewhere
            return
        dead, of = without_gradient(self.trainer.model)
        self._silent = self._silent + 1 if 2 * dead >= of else 0
        if self._silent == SILENT_STEPS:
            raise ValueError(
                f"{dead} of {of} trained tensors got a gradient of exactly 0 in {SILENT_STEPS} steps in a row, though "
                "rows with an advantage were trained: nothing is learned there. Usual causes: 4-bit weights after a "
                "forward pass in eval mode on a CPU (load the model with rlkit.models.load_model), a forward under "
                "no_grad, a detached head."
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **about: Any) -> None:
        """Raise ValueError if an adapter stood still in a step that had a gradient."""
        self.trainer.rows_of_this_step = 0
        if self._before is None:
            return
        moved: dict[str, bool] = {}
        for name, p in adapters(self.trainer.model):
            module = name.split(".lora_")[0]
            moved[module] = moved.get(module, False) or not torch.equal(p.detach(), self._before[name])
        self._before, self._seen_moving = None, True
        still = [module for module, yes in moved.items() if not yes]
        if still:
            raise ValueError(
                f"{len(still)} of {len(moved)} adapters did not move in step {state.global_step}, although rows with a "
                f"gradient were trained; the first is {still[0]}. Usual causes: gradient checkpointing with inputs "
                "that need no gradient (call `model.enable_input_require_grads()` before the trainer is built), a "
                "frozen adapter, or a forward under no_grad."
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **about: Any) -> None:
        """Keep what the policy does now, if asked; say so if no row of the whole run carried a gradient."""
        if state.global_step in self.trainer.record_steps:
            self.trainer.steps[state.global_step] = self.trainer.preview()
        if state.global_step and not self.trainer.trained_tokens:
            logger.warning(
                "No row of this run carried a gradient in %d steps: every advantage was 0, so nothing was learned. "
                "Look at `frac_reward_zero_std` and at the rewards of a few completions.",
                state.global_step,
            )


class Plain(TrainerCallback):
    """A callback from any object with some of its `on_...` methods: methods need not import transformers."""

    def __init__(self, target: Any) -> None:
        for event in (name for name in dir(TrainerCallback) if name.startswith("on_")):
            if hasattr(target, event):
                setattr(self, event, getattr(target, event))


def as_callback(made: Any) -> TrainerCallback:
    """What a factory of the seam `callbacks` gave, as a callback."""
    return made if isinstance(made, TrainerCallback) else Plain(made)


def adapters(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """Trainable adapter parameters; empty for a model without adapters."""
    if not hasattr(model, "peft_config"):
        model = getattr(model, "module", model)
    if not hasattr(model, "peft_config"):
        return []
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def without_gradient(model: torch.nn.Module) -> tuple[int, int]:
    """How many tensors have no gradient but 0, and of how many.

    Of an adapter only B counts, whose gradient is not 0 from the first step on. Without adapters it is all or nothing.
    """
    parts = [p for name, p in adapters(model) if ".lora_B" in name]
    some = parts or [p for p in model.parameters() if p.requires_grad]
    alive = (p.grad is not None and bool(p.grad.any()) for p in some)
    if not parts:
        return (0 if any(alive) else len(some)), len(some)
    return sum(not yes for yes in alive), len(some)


def micro_steps(step: int, batches: int, accumulation: int) -> int:
    """Micro-batches done after `step` optimiser steps, when an epoch has `batches` of them (0: no end)."""
    if not batches:
        return step * accumulation
    per_epoch = math.ceil(batches / accumulation)
    return step // per_epoch * batches + step % per_epoch * accumulation


def check_save_points(trainer: RLVRTrainer, state: TrainerState, batches: int) -> None:
    """Raise ValueError for `save_steps` in the middle of a generation batch; the message has the next valid step.

    The rollouts of a generation batch are not in a checkpoint, so a run resumed there would draw new ones.
    """
    args, every = trainer.args, trainer.generate_every
    if args.save_strategy != "steps" or not state.save_steps:
        return

    def whole(step: int) -> bool:
        return micro_steps(step, batches, args.gradient_accumulation_steps) % every == 0

    points = range(int(state.save_steps), state.max_steps + 1, int(state.save_steps))
    bad = next((step for step in points if not whole(step)), None)
    if bad is None:
        return
    after = next(step for step in range(bad, bad + every * max(1, batches) + 1) if whole(step))
    period = every // math.gcd(every, args.gradient_accumulation_steps)
    raise ValueError(
        f"save_steps={state.save_steps} saves at step {bad}, in the middle of a generation batch, which lasts {every} "
        f"micro-batches (steps_per_generation x num_iterations; {args.gradient_accumulation_steps} a step): a run "
        f"resumed there would not be the same. The next valid step is {after}; save_steps can be a multiple of "
        f"{period}."
    )

"""`RLVRTrainer`: TRL's `GRPOTrainer` with seams for methods, by post-processing what TRL gives; nothing is copied.

Order of a step: sampler, rollout, log-probs of the policy that drew (`rollout.py`); rewards; advantage and `keep`;
batch; denominators over the rows that count (`generation.py`); then, micro-batch by micro-batch, token weight and
surrogate (`coefficients.py`), and rows without a gradient stay out of forward and backward under the denominators of
all rows (`loss.py`). With a method that sets nothing, loss and gradient are TRL's.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from trl import GRPOConfig

from rlkit.combine import SEAMS
from rlkit.method import Method, get_method
from rlkit.trainers import checks, hook_checks, seam_checks
from rlkit.trainers.checkpoint import Checkpoints
from rlkit.trainers.generation import GenerationSeams
from rlkit.trainers.loss import LossSeams
from rlkit.trainers.out_of_memory import SaysWhatItNeeds
from rlkit.trainers.own_reward import OwnReward
from rlkit.trainers.preview import Preview
from rlkit.trainers.rollout import Generation, RolloutSeams
from rlkit.trainers.sampler import EpochSampler
from rlkit.trainers.scored_positions import score_completions_only
from rlkit.trainers.tools import Tools
from rlkit.trainers.watch import Watch, as_callback


class RLVRTrainer(SaysWhatItNeeds, Preview, Checkpoints, GenerationSeams, RolloutSeams, LossSeams, Tools):
    """`GRPOTrainer` that runs a `Method`.

    Args:
        *given: every argument of `GRPOTrainer`, by position or name.
        method: a name from `rlkit.catalog()` or a `Method`. Its memory (`state`) is copied, so that trainers share
            none.
        skip_zero_advantage: leave rows whose advantage is 0 out of forward and backward. Loss and gradient stay the
            same; off by itself with KL, an entropy bonus, an auxiliary loss, `top_entropy_quantile`, an off-policy
            mask, token weights or a surrogate that are not pooled, or a model that sees images.
        on_long_prompt: "refuse" or "drop" prompts that do not fit the model's context beside a completion.
        apply_config: let the method set the TRL options that `args` leaves at TRL's default (logged). False where
            `args` has been resolved with the method already.
        record_steps: optimiser steps to keep in slow motion while training (0 is the first; `max_steps` is a preview
            when training has ended), in `steps`. It changes nothing else.
        **named: see `given`.

    Logs beside TRL's: `generated_tokens` and `trained_tokens` (completion tokens so far, over all ranks; trained are
    those of rows that went through the backward pass), `rows_left_out` (share of rows that did not) and
    `frac_reward_unscorable`. While rows are left out, what TRL averages over trained rows only is named
    `<name>/trained_rows`.

    Raises:
        ValueError: settings, data or hooks that would train wrongly or not at all; the message says what to change.

    """

    reward_funcs: list[Any]
    rollout_func: Any
    train_dataset: Any
    eval_dataset: Any

    def __init__(
        self,
        *given: Any,
        method: str | Method = "grpo",
        skip_zero_advantage: bool = True,
        on_long_prompt: str = "refuse",
        apply_config: bool = True,
        record_steps: Sequence[int] = (),
        **named: Any,
    ) -> None:
        chosen = get_method(method)
        if chosen.trainer != "rlvr":
            raise ValueError(f"Method {chosen.name!r} runs on the {chosen.trainer!r} trainer, not on RLVRTrainer.")
        if on_long_prompt not in ("refuse", "drop"):
            raise ValueError(f"on_long_prompt is 'refuse' or 'drop', not {on_long_prompt!r}.")
        copies: dict[int, Any] = {}
        self.method = copy.deepcopy(chosen, copies) if chosen.state else chosen
        self.sampler: EpochSampler | None = None
        self.generated_tokens = self.trained_tokens = self.rows_of_this_step = 0
        self.gradient_is_due = False
        self.dropped_prompts: dict[str, int] = {}
        self.uncharged_tokens = self.window_left = 0
        self.own_values: dict[str, list[float]] = {}
        self.has_hooks = bool(self.method.callbacks) or any(getattr(self.method, seam) is not None for seam in SEAMS)
        self._live, self._aside = None, False
        self._generation: Generation | None = None
        self._last: Generation | None = None
        self.record_steps, self.steps = checks.steps_to_record(record_steps), {}
        self._probe, self._given, self._seen = None, None, []
        self._told: set[str] = set()

        self.arguments = checks.arguments(given, named)
        super().__init__(**self._checked_arguments(self.arguments, apply_config, copies))
        checks.check_trainable(self.model)
        score_completions_only(self.accelerator.unwrap_model(self.model))
        if self.record_steps:
            checks.check_one_generation(self.args)
        seam_checks.check_fit(self.method, self)
        self._plug_in()
        self.skips_rows = skip_zero_advantage and self._skipping_is_exact()
        self._set_data(on_long_prompt)
        self.add_callback(Watch(self))
        for make in self.method.callbacks:
            self.add_callback(as_callback(make(self)))

    def _plug_in(self) -> None:
        """Put guards around the reward functions, and the method's rollout into TRL's place for it."""
        functions = list(zip(self.reward_funcs, self.reward_func_names, strict=True))
        self.reward_funcs = [self._guarded(func, name) for func, name in functions]
        sized = self.method.sampler is not None and self.use_vllm  # vLLM would draw num_generations a prompt
        self.draws_rows = self.method.rollout is not None or sized
        if not self.draws_rows:
            return
        if self.rollout_func is not None:
            raise ValueError(f"Method {self.method.name!r} draws rollouts itself: rollout_func cannot be given too.")
        self.rollout_func = self._rollout  # as an argument it would make TRL warn at every trainer

    def _guarded(self, func: Any, name: str) -> Any:
        guarded = hook_checks.checked(func, name)
        own = func is self.method.reward and type(guarded) is hook_checks.CheckedReward
        return OwnReward(func, name, self) if own else guarded

    def _checked_arguments(
        self, arguments: dict[str, Any], apply_config: bool, copies: dict[int, Any]
    ) -> dict[str, Any]:
        """TRL's arguments, with the method's options and reward where none were given.

        A given reward that is part of the method's memory is replaced by this trainer's copy of it.
        """
        args = arguments.get("args") or GRPOConfig(f"{self.method.name}-rlvr")
        args = checks.with_method_config(args, self.method) if apply_config else args
        checks.check_config(args)
        checks.check_tokenizer(arguments.get("processing_class"))
        checks.check_reference(arguments.get("model"), args, arguments.get("peft_config"))
        rewards = arguments.get("reward_funcs")
        if rewards is None and callable(self.method.reward):
            rewards = self.method.reward
        rewards = rewards if isinstance(rewards, list) else [] if rewards is None else [rewards]
        return {**arguments, "args": args, "reward_funcs": [copies.get(id(reward), reward) for reward in rewards]}

    @property
    def generate_every(self) -> int:
        """Micro-batches between two generations."""
        return self.args.steps_per_generation * self.num_iterations

    def start_over(self) -> None:
        """Forget the rollouts of an earlier call of `train()`."""
        self._step, self._buffered_inputs, self.rows_of_this_step = 0, None, 0
        self.window_left, self.gradient_is_due = 0, False
        self.steps, self._seen = {}, []

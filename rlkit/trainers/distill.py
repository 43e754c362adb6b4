"""`DistillTrainer`: TRL's `DistillationTrainer` with seams for methods.

Order of a step: rollouts of the student; hidden states of student and teacher, the teacher's under `teacher_prompt`
where the data has that column; scores and token weights (`scoring.py`); the divergence at the kept tokens only
(`heads.py`). The loss is sum(w d) / sum(w) over the whole accumulation window and all ranks; with weight 1 everywhere
that is TRL's mean over tokens, and with a method that sets nothing loss and gradient are TRL's.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from trl import DistillationConfig, DistillationTrainer

from rlkit import divergences
from rlkit.combine import SEAMS
from rlkit.method import Method, get_method
from rlkit.trainers import checks, distill_checks, rows
from rlkit.trainers.checkpoint import Checkpoints
from rlkit.trainers.heads import Job, KeptLoss, whole
from rlkit.trainers.looking import Looking
from rlkit.trainers.out_of_memory import SaysWhatItNeeds
from rlkit.trainers.preview_distill import DistillPreview
from rlkit.trainers.sampler import EpochSampler
from rlkit.trainers.scoring import Batch, Scoring, States, measure, spread
from rlkit.trainers.shared import Shared
from rlkit.trainers.teachers import Teachers, load_teacher
from rlkit.trainers.watch import Watch, as_callback


class DistillTrainer(
    SaysWhatItNeeds, DistillPreview, Checkpoints, Teachers, Scoring, Looking, Shared, DistillationTrainer
):
    """`DistillationTrainer` that runs a `Method` with `trainer="distill"`.

    Args:
        *given: every argument of `DistillationTrainer`, by position or name.
        method: a name from `rlkit.catalog()` or a `Method`. Its memory (`state`) is copied, so that trainers share
            none.
        teacher_tokenizer: the teacher's tokenizer, where `teacher_model` does not say where it came from.
        on_long_prompt: "refuse" or "drop" prompts that do not fit the model's context beside a completion.
        apply_config: as for `RLVRTrainer`.
        record_steps: as for `RLVRTrainer`.
        **named: see `given`.

    Logs beside TRL's: `generated_tokens` and `trained_tokens` (completion tokens so far, over all ranks; trained are
    those of weight above 0), `kept_share` of the step's tokens, and in nats a token `divergence` (reverse KL over what
    was scored), `divergence/kept`, `forward_divergence` (for `needs={"forward"}`) and `teacher_entropy`.

    Raises:
        ValueError: settings, data, teacher or hooks that would train wrongly or not at all; the message says what to
            change.

    """

    def __init__(
        self,
        *given: Any,
        method: str | Method = "opd",
        teacher_tokenizer: Any = None,
        on_long_prompt: str = "refuse",
        apply_config: bool = True,
        record_steps: Sequence[int] = (),
        **named: Any,
    ) -> None:
        chosen = get_method(method)
        if chosen.trainer != "distill":
            raise ValueError(f"Method {chosen.name!r} runs on the {chosen.trainer!r} trainer, not on DistillTrainer.")
        if on_long_prompt not in ("refuse", "drop"):
            raise ValueError(f"on_long_prompt is 'refuse' or 'drop', not {on_long_prompt!r}.")
        self.method = copy.deepcopy(chosen) if chosen.state else chosen
        self.sampler: EpochSampler | None = None
        self.generated_tokens = self.trained_tokens = self.rows_of_this_step = 0
        self.dropped_prompts: dict[str, int] = {}
        self.own_values: dict[str, list[float]] = {}
        self.has_hooks = bool(self.method.callbacks) or any(getattr(self.method, seam) is not None for seam in SEAMS)
        self._aside = False
        self._told: set[str] = set()
        self._sums: Tensor | None = None
        self.record_steps, self.steps = frozenset(record_steps), {}
        self._probe: dict[str, Any] | None = None
        self._given, self._seen, self._last = None, [], []

        bound = inspect.signature(DistillationTrainer.__init__).bind(None, *given, **named).arguments
        arguments = {name: value for name, value in bound.items() if name != "self"}
        self.arguments = dict(arguments)
        args = arguments.get("args") or DistillationConfig(f"{self.method.name}-distill")
        arguments["args"] = checks.with_method_config(args, self.method) if apply_config else args
        teacher = arguments.pop("teacher_model", None)
        distill_checks.check_arguments(self.method, arguments, teacher)
        super().__init__(**arguments)
        checks.check_trainable(self.model)
        distill_checks.check_model(self)
        taught = (None, None) if teacher is None else load_teacher(teacher, args)
        self.teacher_tokenizer = teacher_tokenizer or taught[1]
        self._set_teacher(taught[0], self.teacher_tokenizer)
        self._set_data(on_long_prompt)
        self.add_callback(Watch(self))
        for make in self.method.callbacks:
            self.add_callback(as_callback(make(self)))

    def _check_size(self) -> None:
        distill_checks.check_dataset_size(self.train_dataset, self.args)

    @property
    def generate_every(self) -> int:
        """Micro-batches between two generations: one optimiser step."""
        return self.args.gradient_accumulation_steps

    def start_over(self) -> None:
        """Forget the rollouts of an earlier call of `train()`."""
        self._step, self._buffered_inputs, self.rows_of_this_step = 0, None, 0
        self.steps, self._seen = {}, []

    @property
    def records(self) -> bool:
        """Whether the step under way is kept in slow motion."""
        return not self._aside and self.state.global_step in self.record_steps

    def _generate_single_turn(self, prompt_ids: list[Any], images: Any, fields: Any, *rest: Any, **named: Any) -> Any:
        """What TRL's generation draws, with less work where that is possible; or what a preview was given."""
        if self._given is not None:
            return [list(ids) for ids in self._given]
        drawn = self.decoded(prompt_ids, images, fields)
        return super()._generate_single_turn(prompt_ids, images, fields, *rest, **named) if drawn is None else drawn

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Batch:
        out = super()._generate_and_score_completions(inputs)
        self.check_room(int(out["prompt_mask"].sum(1).max()))
        out["group"] = torch.arange(len(inputs), device=out["prompt_ids"].device)
        if "teacher_prompt" in inputs[0]:
            self._add_teacher_prompts(out, [row["teacher_prompt"] for row in inputs])
        if self.model.training:
            self._last = inputs
            self.generated_tokens += int(self.accelerator.gather(out["completion_mask"].sum()).sum())
            self._metrics["train"]["generated_tokens"] = [self.generated_tokens]
        return out

    def _add_teacher_prompts(self, out: Batch, prompts: list[Any]) -> None:
        """The prompts that the teacher sees before the same completions."""
        ids = self.tokenize(prompts)
        self.check_room(max(map(len, ids)), "A teacher_prompt")
        out["teacher_prompt_ids"], out["teacher_prompt_mask"] = self._padded(ids, "left")

    def compute_loss(self, model: Any, inputs: Batch, *given: Any, **named: Any) -> Any:
        """TRL's, and the metrics of the micro-batch, which are summed over ranks outside the model's forward."""
        loss = super().compute_loss(model, inputs, *given, **named)
        if self._sums is not None:
            self._log_sums(self.accelerator.gather(self._sums[None]).sum(0).tolist())
        self._sums = None
        return loss

    def _compute_loss(
        self, unwrapped_student: Any, inputs: Batch, num_items_in_batch: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.records and self.model.training:
            self.note(inputs)
        states, mask = self._states(unwrapped_student, inputs), rows.loss_mask(inputs)
        weights, total = mask.float(), mask.sum() if num_items_in_batch is None else num_items_in_batch
        if self.model.training and self.method.token_weight is not None:
            if "weights" not in inputs:
                self._weigh(unwrapped_student, inputs, states)
            weights, total = inputs["weights"], inputs["weight_sum"]
        loss, scores = self._kept_loss(unwrapped_student, states, inputs, weights, total)
        self._keep_sums(mask, weights > 0, scores)
        entropies = scores.get("entropies", torch.zeros_like(weights))
        return loss, (entropies * mask).sum(), mask.sum()

    def _kept_loss(
        self, student: Any, states: States, inputs: Batch, weights: Tensor, total: Any, beta: float | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over kept tokens, and the scores (B, T) of all tokens that were looked at."""
        at = weights > 0
        scores = inputs.get("scores") or {}
        job = Job(
            states.student_head,
            states.teacher_head,
            None if states.teacher is None else states.teacher[at],
            weights[at] / torch.as_tensor(total, device=weights.device).clamp(min=1e-12),
            self.temperature,
            self._divergence(inputs, at, weights, beta),
        )
        seen: list[dict[str, Tensor]] = []
        if not scores:
            tokens, wanted = inputs["completion_ids"][at], "forward" in self.method.needs
            job.observe = lambda s, t, part: seen.append(measure(s, t, tokens[part], wanted))
        head = student.get_output_embeddings()
        weight, bias = whole(head.weight), whole(getattr(head, "bias", None))
        if self._probe is not None:
            job.tokens, job.push = inputs["completion_ids"][at], torch.zeros_like(job.weights)
        loss, found = KeptLoss.apply(states.student[at], weight, bias, job)
        if seen:
            scores = {name: spread(torch.cat([part[name] for part in seen]), at) for name in seen[0]}
        if self._probe is not None and job.push is not None:
            shown = {"weight": weights, "coefficient": spread(job.push, at), "loss": spread(found * job.weights, at)}
            self._probe.update(scores=scores, tokens=shown, total=total)
        return loss, scores

    def _divergence(
        self, inputs: Batch, at: Tensor, weights: Tensor, beta: float | None
    ) -> Callable[[Tensor, Any, slice], Any]:
        """The divergence of some kept rows: the method's, or TRL's family by `beta`."""
        method, own = self.method, self.method.divergence
        if own is None or beta is not None:
            chosen = self.beta if beta is None else beta
            return lambda student, teacher, part: divergences.jsd(student, teacher, chosen)
        row, position = at.nonzero(as_tuple=True)
        kept = {"tokens": inputs["completion_ids"][at], "rows": row, "positions": position, "weights": weights[at]}
        known = self.context()

        def checked(student: Tensor, teacher: Any, part: slice) -> Tensor:
            ctx = dataclasses.replace(known, extras={name: value[part] for name, value in kept.items()})
            return distill_checks.check_divergence(own(student, teacher, ctx), student, method)

        return checked

    def _keep_sums(self, mask: Tensor, kept: Tensor, scores: dict[str, Tensor]) -> None:
        """What `compute_loss` logs of this micro-batch, not yet summed over ranks."""
        nothing = torch.zeros_like(mask, dtype=torch.float32)
        div, forward, taught = (scores.get(name, nothing) for name in ("divergence", "forward", "teacher_entropies"))
        sums = [mask.sum(), kept.sum(), (div * mask).sum(), (div * kept).sum(), (forward * mask).sum()]
        self._sums = torch.stack([x.detach().float() for x in (*sums, (taught * mask).sum())])

    def _log_sums(self, sums: list[float]) -> None:
        """Metrics of a micro-batch of all ranks."""
        every, kept, div, div_kept, forward, taught = sums
        metrics = self._metrics["train" if self.model.training else "eval"]
        if self.method.teacher != "none" and every:
            metrics["divergence"].append(div / every)
            metrics["teacher_entropy"].append(taught / every)
            if kept:
                metrics["divergence/kept"].append(div_kept / kept)
            if "forward" in self.method.needs:
                metrics["forward_divergence"].append(forward / every)
        if self.model.training:
            self.trained_tokens += int(kept)
            self.rows_of_this_step += int(kept)
            metrics["trained_tokens"] = [self.trained_tokens]
            if self.method.token_weight is None:
                metrics["kept_share"].append(1.0)

    def check_room(self, longest: int, what: str = "A prompt") -> None:
        """Raise ValueError where a prompt and the longest completion do not fit the model's context."""
        if self.prompt_room is not None and longest > self.prompt_room:
            raise ValueError(
                f"{what} of {longest} tokens does not fit: {self.prompt_room} are left of the model's context after "
                f"max_completion_length={self.max_completion_length}."
            )

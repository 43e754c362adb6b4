"""One training run from beginning to end: train, evaluate on the way, and hand back its metrics.

A worker process does this. The text of this file is part of every run's key: what only serves display is elsewhere.
"""

from __future__ import annotations

import gc
import numbers
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, TrainerControl, TrainerState

from rlkit import paths
from rlkit.prompts import for_model
from rlkit.runs import examples
from rlkit.runs.examples import Examples
from rlkit.runs.keys import Run
from rlkit.sampling import complete
from rlkit.steps.step import Step
from rlkit.tasks.base import NoSplit
from rlkit.trainers.factory import trainer as build
from rlkit.trainers.tracking import tensorboard_in

TIMES = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second", "eval_seconds")
"""What is measured in seconds: kept apart from the metrics, which are the same for the same seed."""
DROPPED = ("epoch", "total_flos")
HELD_OUT = (("accuracy", "eval_size", "test"), ("validation_accuracy", "validation_size", "validation"))
"""(metric, the setting that says on how many prompts, split)."""

Row = tuple[int, str, float]
"""(optimiser step, metric, value)."""


@dataclass
class Result:
    """What a run leaves."""

    metrics: list[Row] = field(default_factory=list)
    timing: list[Row] = field(default_factory=list)
    settings: list[tuple[str, str, str]] = field(default_factory=list)
    """(name, value as text, where it came from)."""
    totals: dict[str, float] = field(default_factory=dict)
    """Optimiser steps, generated tokens, trained tokens."""
    notes: list[str] = field(default_factory=list)
    """What a reader must know about the run."""
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    """Named tables beside the metrics, stored as `NAME.csv`; plain index, `Runs.table` adds arm and seed."""
    steps: dict[int, Step] = field(default_factory=dict)
    """What `record_steps` kept, stored as `step_NUMBER.json`."""


def train(run: Run, folder: Path, *, stop_after: int = 0, callbacks: Sequence[TrainerCallback] = ()) -> Result:
    """Train one run and evaluate it.

    Args:
        run: what to train.
        folder: a temporary folder for what TRL writes.
        stop_after: end after this many optimiser steps of a run planned for more; 0 runs to the end.
        callbacks: further callbacks of the trainer.
    """
    settings = {**run.overrides, "output_dir": str(folder)}
    with one_setting_of_threads(), old_objects_left_alone():
        trainer = build(
            run.method,
            preset=run.preset,
            seed=run.seed,
            model=run.model,
            task=run.task,
            reward=run.reward,
            teacher=run.teacher,
            **settings,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        evaluation = Evaluation(trainer)
        seen = watch_rollouts(trainer)
        extra = [StopAfter(stop_after)] if stop_after else []
        for callback in (evaluation, *extra, *callbacks):
            trainer.add_callback(callback)
        name = run.method if isinstance(run.method, str) else run.method.name
        logs = paths.build() / "tensorboard" / f"{name}-seed{run.seed}"  # the run's own folder is a temporary one
        with tensorboard_in(logs, run.overrides.get("report_to")):
            trainer.train()
        result = collect(trainer, evaluation)
        table = seen.frame(logged_steps(trainer))
        result.tables = {examples.NAME: table} if len(table) else {}
        result.steps = dict(trainer.steps)
        del trainer, evaluation
        gc.collect()
    return result


@contextmanager
def one_setting_of_threads() -> Iterator[None]:
    """Put torch's number of threads back, which a preset sets for the process."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def old_objects_left_alone() -> Iterator[None]:
    """Keep what exists already out of garbage collections, which a run asks for twice: 0.5 s less a run."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def collect(trainer: Any, evaluation: Evaluation) -> Result:
    """Metrics, times, settings and totals of a trainer that has finished."""
    result = Result(metrics=list(evaluation.accuracy), timing=list(evaluation.seconds))
    rows = (row for row in trainer.settings.rows() if row[0] != "output_dir")
    result.settings = [(name, repr(value), origin) for name, value, origin in rows]
    for entry in trainer.state.log_history:
        for name, value in entry.items():
            if name in ("step", *DROPPED) or isinstance(value, bool) or not isinstance(value, numbers.Real):
                continue
            if name in TIMES and value < 0:  # transformers reads the wall clock, which somebody may set back
                continue
            kind = result.timing if name in TIMES else result.metrics
            kind.append((int(entry["step"]), name, float(value)))
    logged = {name: value for _, name, value in result.metrics}
    costs = [name for name in ("generated_tokens", "trained_tokens") if name in logged]
    result.metrics += [(0, name, 0.0) for name in costs]
    result.metrics.sort(key=lambda row: (row[1], row[0]))
    result.totals = {"optimizer_steps": trainer.state.global_step} | {name: logged[name] for name in costs}
    result.notes = [*learnt_nothing(result.metrics)]
    return result


def learnt_nothing(metrics: Sequence[Row]) -> Iterator[str]:
    """A note where no step of the run had a gradient: every advantage was 0 from beginning to end."""
    norms = [value for _, name, value in metrics if name == "grad_norm"]
    if norms and not any(norms):
        equal = [value for _, name, value in metrics if name == "frac_reward_zero_std"]
        share = f" In {sum(equal) / len(equal):.0%} of the groups all rewards were equal." if equal else ""
        yield f"nothing was learnable: the gradient was 0 in all {len(norms)} logged steps.{share}"


class Evaluation(TrainerCallback):
    """Greedy accuracy on test prompts at step 0, every `eval_every` steps and at the end.

    With `validation_size` also on so many prompts of the validation split: `validation_accuracy`, to choose a
    checkpoint by without a look at the test split.

    Draws no random number, restores the model's mode, and keeps its results to itself: training cannot tell that it is
    there. Without gold answers, or with `eval_size=0`, it does nothing.
    """

    def __init__(self, trainer: Any) -> None:
        self.accuracy: list[Row] = []
        self.seconds: list[Row] = []
        self._trainer, self._task = trainer, trainer.task
        self._every = trainer.settings.get("eval_every") or 0
        sizes = {name: trainer.settings.get(setting) or 0 for name, setting, _ in HELD_OUT}
        rows = {name: held_out(self._task, split, sizes[name], trainer.processing_class) for name, _, split in HELD_OUT}
        self._rows = {name: found for name, found in rows.items() if found is not None}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Before the first step; a run that goes on has that already."""
        if not self.accuracy:
            self.evaluate(state.global_step)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Every `eval_every` steps."""
        if self._every and state.global_step % self._every == 0:
            self.evaluate(state.global_step)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """After the last step."""
        self.evaluate(state.global_step)

    def stop(self) -> None:
        """Evaluate no more: the run is interrupted and has no time to lose."""
        self._rows = {}

    def evaluate(self, step: int) -> None:
        """The model as it is, noted as that of a step; once a step."""
        if not self._rows or (self.accuracy and self.accuracy[-1][0] == step):
            return
        started = time.perf_counter()
        trainer, tokenizer = self._trainer, self._trainer.processing_class
        with whole_model(trainer) as model:
            for name, rows in self._rows.items():
                length = trainer.args.max_completion_length
                completions = complete(model, tokenizer, rows["prompt"], max_new_tokens=length, greedy=True)
                right = self._task.correct(completions, rows["gold"])
                self.accuracy.append((step, name, sum(right) / len(right)))
        self.seconds.append((step, "eval_seconds", time.perf_counter() - started))


@contextmanager
def whole_model(trainer: Any) -> Iterator[Any]:
    """The model with all its weights on this process, also where FSDP or DeepSpeed (stage 3) has spread them."""
    if not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        yield trainer.accelerator.unwrap_model(trainer.model)
        return
    from torch.distributed.fsdp import FullyShardedDataParallel
    from trl.models import unwrap_model_for_generation

    wrapped = trainer.model_wrapped
    spread = trainer.is_fsdp_enabled and isinstance(wrapped, FullyShardedDataParallel)
    gathered = FullyShardedDataParallel.summon_full_params(wrapped, recurse=False) if spread else nullcontext()
    with unwrap_model_for_generation(wrapped, trainer.accelerator) as model, torch.no_grad(), gathered:
        yield model


class StopAfter(TrainerCallback):
    """End training after some steps; schedules still count on all of them."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """After each step."""
        control.should_training_stop |= state.global_step >= self.steps


def held_out(task: Any, split: str, size: int, tokenizer: Any) -> dict[str, list[Any]] | None:
    """The first `size` rows of a split, the same for every seed; None where they cannot be graded."""
    if task is None or size < 1:
        return None
    try:
        rows = task.dataset(split, size)
    except NoSplit:  # a user's DatasetDict may lack one; anything else that is wrong with the data is an error
        return None
    return for_model(rows, tokenizer).to_dict() if "gold" in rows.column_names else None


def watch_rollouts(trainer: Any) -> Examples:
    """Log `rollout_accuracy`, the share of exactly right rollouts, whatever the reward, and count them by example.

    Grading draws no random number, and TRL averages the metric over a step like its own. By example only what the
    present policy draws to train on is counted: not what an evaluation, `collect` or a preview draws. Distillation
    grades nothing.
    """
    seen = Examples()
    if trainer.method.trainer == "distill":
        return seen
    grade, task = trainer._calculate_rewards, trainer.task

    def graded(inputs: list[dict[str, Any]], prompts: Any, completions: list[Any], *rest: Any) -> Any:
        rewards = grade(inputs, prompts, completions, *rest)
        if not trainer.model.training or not inputs:
            return rewards
        right = None
        if task is not None and "gold" in inputs[0]:
            right = task.correct(completions, [row["gold"] for row in inputs])
            trainer._metrics["train"]["rollout_accuracy"].append(over_processes(trainer, right))
        if trainer.learns:
            count(inputs, right, rewards)
        return rewards

    def count(inputs: list[dict[str, Any]], right: list[float] | None, per_func: torch.Tensor) -> None:
        now = examples.drawn_now(trainer._generation and trainer._generation.drawn, len(inputs))
        mine = [i for i, own in enumerate(now) if own]
        values = trainer.weighted(per_func)[trainer.here(len(inputs))].tolist()
        rows, marks = [inputs[i] for i in mine], None if right is None else [right[i] for i in mine]
        seen.add(trainer.state.global_step + 1, rows, marks, [values[i] for i in mine])

    trainer._calculate_rewards = graded
    return seen


def over_processes(trainer: Any, values: Sequence[float]) -> float:
    """The mean over the rows of all processes, which have as many each."""
    mean = sum(values) / len(values)
    if trainer.accelerator.num_processes == 1:
        return mean
    here = torch.tensor([mean], dtype=torch.float32, device=trainer.accelerator.device)
    return float(trainer.accelerator.gather(here).double().mean())


def logged_steps(trainer: Any) -> list[int]:
    """The optimiser steps at which a training loss was logged."""
    return [int(entry["step"]) for entry in trainer.state.log_history if "loss" in entry]

"""One `rlkit train` from beginning to end, or from its last checkpoint on.

Training, evaluation and metrics are those of the notebooks' runs (`rlkit.runs.training`). With several processes all
of them take part in whatever is collective; the first alone writes files and prints.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback, TrainerControl, TrainerState

from rlkit.launch import card, folder
from rlkit.launch.folder import Folder
from rlkit.launch.plan import Plan, check_same, record_of, save_period, saving, settings_of
from rlkit.runs.keys import versions
from rlkit.runs.training import Evaluation, Result, collect, watch_rollouts
from rlkit.trainers.factory import trainer as build

LEFT_OUT = ("train_loss",)
"""A mean over the steps since the last resume only."""


@dataclass
class Outcome:
    """How a run ended."""

    finished: bool
    step: int
    resumed: int
    """The step that it went on from; 0 from the beginning."""
    metrics: dict[str, float]
    """The last value of each metric; empty where it was done before."""
    signal: int = 0
    """What interrupted it."""


def train(plan: Plan, out: Path, say: Callable[[str], None] = print) -> Outcome:
    """Train a plan in a folder; the same plan again goes on from the last checkpoint, another is refused.

    Raises:
        ValueError: settings that cannot be, or a folder of another run.

    """
    place, first = Folder(out.resolve()), is_first()
    settings = settings_of(plan)  # before the folder is touched
    saves = saving(settings)
    asked = record_of(plan, {**settings, **saves})
    with place.held() if first else contextlib.nullcontext():
        old = place.record()
        if old is not None:
            check_same(place.path, old["arguments"], asked)
            if old.get("finished"):
                return Outcome(True, int(old["step"]), 0, {})
        changed = [] if old is None else [n for n, v in versions().items() if old.get("versions", {}).get(n, v) != v]
        if changed:
            say(f"note: other versions than at the beginning ({', '.join(changed)}): results may differ a little")
        return _train(plan, place, saves, asked, say if first else _silent)


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return int(os.environ.get("RANK", "0")) == 0


def _silent(text: str) -> None:
    """What the other processes say."""


def _train(plan: Plan, place: Folder, saves: dict[str, Any], asked: dict[str, str], say: Callable[[str], None]) -> Any:
    trainer: Any = build(**{**plan.arguments, **saves, "output_dir": str(place.path)})
    trainer.settings.origin.update({name: "rlkit train" for name in saves if name not in plan.values})
    for kind in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(kind)
    facts = {"versions": versions(), "finished": False}
    evaluation = Evaluation(trainer)
    watch_rollouts(trainer)
    start = next(iter(reversed(place.checkpoints())), None)
    begun = 0 if start is None else folder.step_of(start)
    if start is not None:
        evaluation.accuracy, evaluation.seconds = folder.load_evaluations(start)
        say(f"goes on from step {begun}")
    trainer.accelerator.wait_for_everyone()  # all have looked before anything is written
    if trainer.is_world_process_zero():
        place.note(asked, **facts)
    with signals_heard() as heard:
        for callback in (evaluation, Keeper(trainer, evaluation, place, plan, heard, say)):
            trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=None if start is None else str(start))
        stopped = trainer.anywhere(bool(heard)) and trainer.state.global_step < trainer.state.max_steps
        result = results(trainer, evaluation)
        if not stopped:
            _keep_model(trainer, place, plan, result)
            if trainer.is_world_process_zero():
                place.note(asked, **{**facts, "finished": True, "step": trainer.state.global_step})
        trainer.accelerator.wait_for_everyone()
    last = {name: value for _, name, value in result.metrics}
    return Outcome(not stopped, trainer.state.global_step, begun, last, heard[0] if stopped and heard else 0)


def results(trainer: Any, evaluation: Evaluation) -> Result:
    """Metrics, times and settings so far."""
    found = collect(trainer, evaluation)
    found.metrics = [row for row in found.metrics if row[1] not in LEFT_OUT]
    return found


def _keep_model(trainer: Any, place: Folder, plan: Plan, result: Result) -> None:
    """The trained weights (of adapters: these alone), the tokenizer and a card. All processes take part."""
    trainer.save_model(str(place.model))
    if not trainer.is_world_process_zero():
        return
    (place.model / "training_args.bin").unlink(missing_ok=True)  # a pickle; the card has every setting
    place.write_tables(plan.method, plan.seed, result.metrics, result.timing)
    card.write(place.model, trainer, plan, result)


class Keeper(TrainerCallback):
    """Completes each checkpoint, keeps the tables up to date, says how it goes, and stops when it is told to."""

    def __init__(
        self, trainer: Any, evaluation: Evaluation, place: Folder, plan: Plan, heard: list[int], say: Any
    ) -> None:
        self.trainer, self.evaluation, self.place, self.plan = trainer, evaluation, place, plan
        self.heard, self.say, self.period = heard, say, save_period(trainer.settings)
        self._told = len(evaluation.accuracy)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **about: Any) -> None:
        """Save and stop at the next step from which the run can go on, on all processes together."""
        if self.trainer.anywhere(bool(self.heard)) and state.global_step % self.period == 0:
            self.evaluation.stop()
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **about: Any) -> None:
        """After a checkpoint."""
        whole = state.global_step % self.period == 0  # the last step can lie inside a generation batch
        if state.is_world_process_zero:
            (self.place.path / "README.md").unlink(missing_ok=True)  # TRL's; the model's card is written at the end
            checkpoint = self.place.path / f"checkpoint-{state.global_step}"
            found = results(self.trainer, self.evaluation)
            self.place.write_tables(self.plan.method, self.plan.seed, found.metrics, found.timing)
            if whole:
                folder.save_evaluations(checkpoint, self.evaluation.accuracy, self.evaluation.seconds)

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **about: Any) -> None:
        """A line for each evaluation, with the step's loss and reward."""
        logs = about.get("logs") or {}
        fresh, self._told = self.evaluation.accuracy[self._told :], len(self.evaluation.accuracy)
        for step in sorted({step for step, *_ in fresh}):
            parts = [f"{name} {value:.3f}" for at, name, value in fresh if at == step]
            if step == state.global_step:
                parts += [f"{name} {float(logs[name]):.4g}" for name in ("reward", "loss") if name in logs]
            self.say(f"step {step}/{state.max_steps}: {', '.join(parts)}")


@contextlib.contextmanager
def signals_heard() -> Iterator[list[int]]:
    """SIGTERM and Ctrl-C are noted once, for the next step's end; a second one ends the process as it always does."""
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}

    def note(number: int, frame: Any) -> None:
        heard.append(number)
        for each in numbers:
            signal.signal(each, before[each])

    for number in numbers:
        signal.signal(number, note)
    try:
        yield heard
    finally:
        for number in numbers:
            signal.signal(number, before[number])

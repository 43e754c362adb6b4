"""`rlkit train`: one run as a script. It saves its model, goes on where it was stopped, and runs on several processes.

The folder of a run holds `run.json` (what was asked for), `checkpoints/`, and at the end `model/` (the adapter alone
where one was trained) with a card, `metrics.csv` and `timing.csv`. The same command again goes on from the last
checkpoint, to the same result; another command in the same folder is refused.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from rlkit.files import write_atomic
from rlkit.method import Method, get_method
from rlkit.models.loading import REVISIONS
from rlkit.presets import get_preset
from rlkit.runs.keys import Run
from rlkit.runs.training import Evaluation, Result, Row, train
from rlkit.tasks.base import get_task
from rlkit.trainers.factory import student_of

REQUEST, EVALUATED, MODEL, CARD = "run.json", "rlkit_evaluation.json", "model", "README.md"
OF_THE_CALL = "train_loss"
"""A mean over the steps since the last start: another number where a run was stopped."""
CHECKPOINTS = 10
"""Checkpoints in a run, unless `save_steps` says otherwise; the last two are kept."""


def train_script(run: Run, folder: Path) -> Result:
    """Train a run in a folder, or go on with it.

    Args:
        run: what to train.
        folder: made if it is not there.

    Raises:
        ValueError: the folder holds another run; unknown settings; see `rlkit.trainer`.
    """
    main = int(os.environ.get("RANK", "0")) == 0
    _claim(run, folder, main)
    saving = {"save_strategy": "steps", "save_total_limit": 2, **run.overrides}
    result = train(
        Run(**{**vars(run), "overrides": saving}),
        folder / "checkpoints",
        callbacks=[],
        begin=lambda trainer, evaluation: _begin(trainer, evaluation, "save_steps" in run.overrides),
        end=lambda trainer: _save(trainer, folder / MODEL),
    )
    if main:
        write_atomic(folder / "metrics.csv", _table([row for row in result.metrics if row[1] != OF_THE_CALL]))
        write_atomic(folder / "timing.csv", _table(result.timing))
        write_atomic(folder / MODEL / CARD, card(run, result, folder / MODEL))
    return result


def request(run: Run) -> dict[str, Any]:
    """A run as JSON: what tells it from another one."""
    method = run.method.name if isinstance(run.method, Method) else run.method
    named = {"model": run.model, "task": run.task, "reward": run.reward, "teacher": run.teacher}
    said = {"method": method, "preset": run.preset, "seed": run.seed, **named, **run.overrides}
    return {name: value for name, value in json.loads(json.dumps(said, default=str)).items() if value is not None}


def _claim(run: Run, folder: Path, main: bool) -> None:
    """Take the folder, or see that it is this run's."""
    path, mine = folder / REQUEST, request(run)
    if path.is_file():
        theirs = json.loads(path.read_text(encoding="utf-8"))
        differ = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
        if differ:
            told = ", ".join(f"{name} {theirs.get(name)!r}, not {mine.get(name)!r}" for name in differ)
            raise ValueError(f"{folder} holds another run: {told}. Give another --out, or remove the folder.")
    elif main:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(mine, indent=1) + "\n")


def _begin(trainer: Any, evaluation: Evaluation, said: bool) -> str | None:
    """Choose when to save, and find the checkpoint to go on from."""
    if not said:
        steps = trainer.args.max_steps
        period = trainer.generate_every // math.gcd(trainer.generate_every, trainer.args.gradient_accumulation_steps)
        trainer.args.save_steps = math.ceil(max(1, steps // CHECKPOINTS) / period) * period
    trainer.add_callback(KeepEvaluation(evaluation))
    last = last_checkpoint(Path(trainer.args.output_dir))
    if last is None:
        return None
    evaluation.accuracy[:] = [tuple(row) for row in json.loads((last / EVALUATED).read_text(encoding="utf-8"))]
    return str(last)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint of a folder: the evaluation is written into it last."""
    found = [path.parent for path in folder.glob(f"checkpoint-*/{EVALUATED}")]
    return max(found, key=lambda path: int(re.sub(r"\D", "", path.name)), default=None)


class KeepEvaluation(TrainerCallback):
    """Writes what was evaluated so far into each checkpoint, as its last file."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **about: Any) -> None:
        """After a checkpoint was written."""
        if state.is_world_process_zero:
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / EVALUATED
            write_atomic(path, json.dumps(self.evaluation.accuracy))


def _save(trainer: Any, folder: Path) -> None:
    """Weights as safetensors, and the tokenizer. Every process takes part: with FSDP each holds a share."""
    trainer.save_model(str(folder))
    if trainer.is_world_process_zero():
        trainer.processing_class.save_pretrained(folder)
        for path in folder.glob("*.bin"):  # TRL's copy of its arguments is a pickle
            path.unlink()


def _table(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("step", "metric", "value"), *((step, name, repr(value)) for step, name, value in rows)])
    return text.getvalue()


def card(run: Run, result: Result, folder: Path) -> str:
    """The model's card: what it was trained from and how, what came out, how it is loaded."""
    method = get_method(run.method)
    said = {name: value for name, value, _ in result.settings}
    last = {name: value for step, name, value in sorted(result.metrics)}
    adapter = (folder / "adapter_config.json").is_file()
    base = _base(run)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("trl", "transformers", "torch"))
    shown = ("accuracy", "reward", "generated_tokens", "trained_tokens")
    lines = [
        f"# {method.name}, trained with rlkit",
        "",
        f"Method: {method.name}{f' (arXiv {method.paper})' if method.paper else ''}. {method.summary}",
        f"Base model: {base}. Seed {run.seed}, preset {run.preset}, {result.totals['optimizer_steps']:g} steps.",
        "The folder holds the LoRA adapter only: it needs the base model." if adapter else "It holds all weights.",
        "",
        "```python",
        *_loading(base, adapter, said.get("quantization", "'none'") != "'none'"),
        "```",
        "",
        "| last value | |",
        "|---|---|",
        *(f"| {name} | {last[name]:g} |" for name in shown if name in last),
        "",
        "| setting | value | from |",
        "|---|---|---|",
        *(f"| {name} | `{value}` | {origin} |" for name, value, origin in result.settings),
        "",
        f"{versions}.",
    ]
    return "\n".join(lines) + "\n"


def _base(run: Run) -> str:
    """The model that was trained, with the hub's commit where it is pinned."""
    dial = get_preset(run.preset)
    name = str(run.model or student_of(get_task(run.task or dial.task), dial))
    return f"{name} at {REVISIONS[name]}" if name in REVISIONS else name


def _loading(base: str, adapter: bool, four_bits: bool) -> list[str]:
    name = base.partition(" at ")[0]
    if not adapter:
        return ["from rlkit.models import load_model", "", 'model, tokenizer = load_model("THIS FOLDER")']
    bits = ', quantization="nf4"' if four_bits else ""
    return [
        "from peft import PeftModel",
        "from rlkit.models import load_model",
        "",
        f'model, tokenizer = load_model("{name}"{bits})',
        'model = PeftModel.from_pretrained(model, "THIS FOLDER")'
        + ("  # never merge it into 4-bit weights" if four_bits else ""),
    ]

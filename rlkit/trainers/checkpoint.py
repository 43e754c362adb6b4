"""What a checkpoint keeps beside TRL's files: a method's memory and the trainer's counters, as JSON and safetensors.

No pickle: a checkpoint that came from somebody else can be read without running its code.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import Trainer

from rlkit.method import Method

logger = logging.getLogger(__name__)

JSON_NAME = "rlkit_state.json"
TENSORS_NAME = "rlkit_state.safetensors"
"""Of rank 0; other ranks have their number in the name, because what they hold (a replay buffer) can differ."""
PLAIN = (bool, int, float, str, type(None))


def pack(value: Any, tensors: dict[str, torch.Tensor], where: str = "state") -> Any:
    """A value as JSON; tensors and arrays go to `tensors` under the path at which they were found.

    Raises:
        TypeError: naming the path of something that is no number, text, tensor, array, list, tuple, set or dict.

    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        array = not isinstance(value, torch.Tensor)
        tensors[where] = torch.as_tensor(value).detach().cpu().clone().contiguous()
        return {"array" if array else "tensor": where}
    if isinstance(value, Mapping):
        pairs = enumerate(value.items())
        return {"dict": [[pack(k, tensors, f"{where}.k{i}"), pack(v, tensors, f"{where}.{i}")] for i, (k, v) in pairs]}
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return {kind.__name__: [pack(v, tensors, f"{where}.{i}") for i, v in enumerate(value)]}
    raise TypeError(f"{where}: state_dict() holds a {type(value).__name__}, which cannot be saved without pickle.")


def unpack(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The value that `pack` was given."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "array":
        return tensors[content].numpy()
    if kind == "dict":
        return {unpack(k, tensors): unpack(v, tensors) for k, v in content}
    return {"list": list, "tuple": tuple, "set": set}[kind](unpack(v, tensors) for v in content)


def files(folder: Path, rank: int) -> tuple[Path, Path]:
    """Where a rank's JSON and tensors are."""
    names = (JSON_NAME, TENSORS_NAME)
    own = names if rank == 0 else tuple(name.replace("state", f"state_{rank}") for name in names)
    return folder / own[0], folder / own[1]


def save(folder: Path, state: Mapping[str, Any], rank: int = 0) -> None:
    """Write `state` into a checkpoint folder; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(pack(state, tensors), indent=1)
    written, stored = files(folder, rank)
    part = stored.with_name(f"{stored.name}.part")
    save_file(tensors, part)
    os.replace(part, stored)
    part = written.with_name(f"{written.name}.part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, written)


def load(folder: Path, rank: int = 0) -> dict[str, Any] | None:
    """What `save` wrote; None for a checkpoint that rlkit did not write."""
    written, stored = files(folder, rank)
    if not written.exists():
        return None
    return unpack(json.loads(written.read_text(encoding="utf-8")), load_file(stored))


@contextmanager
def whole_or_gone(folder: Path) -> Iterator[None]:
    """Remove a checkpoint that cannot be finished. Raises OSError, with what to do, where the disk refuses."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError) or "inline_container" in str(error):  # torch.save's own
            cause = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise OSError(
                f"Cannot write {folder}: {cause}. No part of it is left. Free some space there and start again: "
                "training goes on from the one before, if there is one."
            ) from error
        raise


@contextmanager
def nothing_but_tensors(checkpoint: str | None) -> Iterator[None]:
    """Where torch refuses a file that could run code, and advises to allow it, say which folder it is in."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        raise ValueError(
            f"{checkpoint}: a file there holds more than tensors and numbers, and is not read, because it could run "
            "code. Resume from a checkpoint that this run has written."
        ) from None


class Checkpoints(Trainer):
    """How the trainers save and resume; mixed in before one of TRL's trainers."""

    method: Method
    generated_tokens: int
    trained_tokens: int
    rows_of_this_step: int
    _step: int

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Write our part first: TRL's last file then says that the checkpoint is whole."""
        step = self.state.global_step
        resumable = self._step % self.generate_every == 0
        if not resumable:
            logger.warning(
                "The checkpoint of step %d is in the middle of a generation batch: it cannot be resumed.", step
            )
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{step}"
        with whole_or_gone(folder):
            if self.args.should_save or self.method.state:
                save(folder, self._memory(resumable), self.accelerator.process_index)
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)

    def _memory(self, resumable: bool) -> dict[str, Any]:
        """What TRL's files lack: counters, and what the method remembers."""
        counters = {"generated_tokens": self.generated_tokens, "trained_tokens": self.trained_tokens}
        memory = [thing.state_dict() for thing in self.method.state]
        ranks = self.accelerator.num_processes
        return {"method": self.method.name, "resumable": resumable, **counters, "state": memory, "ranks": ranks}

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with nothing_but_tensors(checkpoint):
            super()._load_rng_state(checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with nothing_but_tensors(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            rank = self.accelerator.process_index if self.method.state else 0
            self._restore(checkpoint, load(Path(checkpoint), rank) or {})

    def _restore(self, checkpoint: str, saved: Mapping[str, Any]) -> None:
        """Counters and memory of a checkpoint. Raises ValueError where the run could not go on as it was."""
        if not saved.get("resumable", True):
            raise ValueError(
                f"{checkpoint} was saved in the middle of a generation batch, whose rollouts it does not hold: a run "
                "resumed there would not be the same. Resume from an earlier checkpoint."
            )
        memory, ranks = saved.get("state", []), self.accelerator.num_processes
        if self.method.state and memory and saved.get("ranks", 1) != ranks:
            raise ValueError(
                f"{checkpoint} holds the memory of {saved.get('ranks', 1)} processes (method {self.method.name!r}), "
                f"and there are {ranks}: a run resumed here would not be the same."
            )
        if len(memory) != len(self.method.state):
            raise ValueError(
                f"{checkpoint} holds the memory of {len(memory)} objects (method {saved.get('method')!r}), and method "
                f"{self.method.name!r} has {len(self.method.state)}."
            )
        for thing, state in zip(self.method.state, memory, strict=True):
            thing.load_state_dict(state)
        self.generated_tokens = saved.get("generated_tokens", 0)
        self.trained_tokens = saved.get("trained_tokens", 0)

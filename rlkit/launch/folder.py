"""The folder of one `rlkit train`: what is in it, and from where an interrupted run goes on.

run.json                  what was asked for, and whether it is done
metrics.csv, timing.csv   as a run of a notebook has them; up to date at every checkpoint
checkpoint-N/             to go on from; the newest two
model/                    at the end: weights, tokenizer and a card
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rlkit.files import check_writable, write_atomic

RUN, METRICS, TIMING, MODEL = "run.json", "metrics.csv", "timing.csv", "model"
EVALUATIONS = "rlkit_evaluations.json"
"""In a checkpoint, written when everything else of it is there: what was evaluated up to its step."""
HEADER = "arm,seed,step,metric,value\n"

Row = tuple[int, str, float]


@dataclass(frozen=True)
class Folder:
    """Where a run lives."""

    path: Path

    @property
    def model(self) -> Path:
        """Where the trained model is when the run is done."""
        return self.path / MODEL

    def record(self) -> dict[str, Any] | None:
        """What `note` wrote last.

        Raises:
            ValueError: something else is in the folder, or the file is damaged.

        """
        file = self.path / RUN
        if not file.exists():
            others = [path.name for path in self.path.iterdir() if path.name != "lock"] if self.path.is_dir() else []
            if others:
                raise ValueError(f"{self.path} is not empty and holds no run ({others[0]}): name another with --out.")
            return None
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            return found if isinstance(found["arguments"], dict) else None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} cannot be read ({error}): remove {self.path}, or name another folder.") from None

    def note(self, arguments: Mapping[str, str], **facts: Any) -> None:
        """Write what was asked for, and facts such as `finished`."""
        text = json.dumps({"arguments": dict(arguments), **facts}, indent=1, ensure_ascii=False)
        write_atomic(self.path / RUN, text + "\n")

    def checkpoints(self) -> list[Path]:
        """Whole checkpoints from which a run can go on, the oldest first."""
        found = (path for path in self.path.glob("checkpoint-*") if path.name.partition("-")[2].isdigit())
        return [path for path in sorted(found, key=step_of) if (path / EVALUATIONS).is_file()]

    def write_tables(self, arm: str, seed: int, metrics: list[Row], timing: list[Row]) -> None:
        """metrics.csv and timing.csv, values with all their digits."""
        for name, rows in ((METRICS, metrics), (TIMING, timing)):
            lines = (f"{arm},{seed},{step},{metric},{value!r}\n" for step, metric, value in rows)
            write_atomic(self.path / name, HEADER + "".join(lines))

    @contextmanager
    def held(self) -> Iterator[None]:
        """No second process trains here meanwhile.

        Raises:
            ValueError: one does.
            OSError: the folder cannot be written to.

        """
        try:
            check_writable(self.path)
        except OSError as error:
            raise OSError(f"{error} --out names the folder.") from None
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path / "lock", timeout=0):
                yield
        except Timeout:
            raise ValueError(f"another process trains in {self.path}: wait for it, or name another folder.") from None


def step_of(checkpoint: Path) -> int:
    """The optimiser step of `checkpoint-N`."""
    return int(checkpoint.name.partition("-")[2])


def save_evaluations(checkpoint: Path, accuracy: list[Row], seconds: list[Row]) -> None:
    """Write what was evaluated so far: the checkpoint is whole then."""
    write_atomic(checkpoint / EVALUATIONS, json.dumps({"accuracy": accuracy, "seconds": seconds}))


def load_evaluations(checkpoint: Path) -> tuple[list[Row], list[Row]]:
    """What `save_evaluations` wrote."""
    found = json.loads((checkpoint / EVALUATIONS).read_text(encoding="utf-8"))
    accuracy, seconds = ([(int(s), str(n), float(v)) for s, n, v in found[name]] for name in ("accuracy", "seconds"))
    return accuracy, seconds

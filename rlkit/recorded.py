"""What the committed figures of a notebook are drawn from: `data/recorded/SLUG/`, written by a full run.

Runs are found by arm, settings and seed, measurements by function and inputs; never by key, which changes with code.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlkit.files import not_written
from rlkit.method import near
from rlkit.runs import results
from rlkit.runs.digest import Unhashable, digest

if TYPE_CHECKING:
    from rlkit.runs import Arm

LIMIT = 300_000
"""Bytes of a notebook's recorded data: a repository keeps every version of them."""
SMALL = 4_000
"""Bytes of JSON that stay readable; more is compressed."""
RUNS, INDEX, FINGERPRINT = "runs.csv.gz", "recorded.json", "fingerprint.json"
TABLE = ["arm", "seed", "step", "metric", "value"]
DIGITS = 7
"""Significant digits of recorded metrics."""


class NotRecorded(LookupError):
    """Recorded data lack what is asked for; in recorded mode nothing is trained instead."""


def describe(value: Any) -> Any:
    """A setting as JSON that says what it is without depending on the code: functions and objects by name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): describe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [describe(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__} | {f.name: describe(getattr(value, f.name)) for f in fields(value)}
    name = getattr(value, "__qualname__", None) or getattr(value, "name", None)
    if isinstance(name, str):
        return f"{type(value).__name__} {name}"
    try:
        return f"{type(value).__name__} {digest(value)[:12]}"
    except Unhashable:
        return type(value).__name__


def described_arm(arm: Arm) -> dict[str, Any]:
    """What identifies an arm beside its label."""
    return {"method": arm.method_name, "settings": describe(arm.settings)}


def kept(frame: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows of some metrics, values to 7 digits: what a figure may read, drawn now or redrawn from recorded data.

    Raises:
        ValueError: a metric that no run logged.
    """
    have = list(frame["metric"].unique())
    for name in metrics:
        if name not in have:
            raise ValueError(f"No run logged {name!r}, which keep= names. {near(name, have)}")
    found = frame[frame["metric"].isin(metrics)].reset_index(drop=True)
    return found.assign(value=[float(f"{value:.{DIGITS}g}") for value in found["value"]])


@dataclass
class Recorded:
    """Recorded data in memory: filled by a study, or read from its folder."""

    slug: str
    preset: str = "full"
    frame: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=TABLE))
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Label to method, settings, tier, role, keys by seed."""
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name to inputs, kind, key."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files of the measurements."""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    code_key: str = ""
    milliseconds: float = 0.0
    """Of one optimiser step where it was recorded, as a guide to what a run costs."""

    def add_runs(self, arms: Sequence[Arm], frame: pd.DataFrame, keys: Mapping[tuple[str, int], str | None]) -> None:
        """Take in runs; an arm that was there already is replaced."""
        labels = [arm.label for arm in arms]
        old = self.frame[~self.frame["arm"].isin(labels)]
        new = frame[frame["arm"].isin(labels)]
        self.frame = pd.concat([part for part in (old, new) if len(part)], ignore_index=True)
        for arm in arms:
            own = {str(seed): key for (label, seed), key in keys.items() if label == arm.label}
            self.arms[arm.label] = {**described_arm(arm), "tier": arm.tier, "role": arm.role, "keys": own}

    def add_measure(self, name: str, inputs: Mapping[str, Any], key: str | None, value: Any) -> None:
        """Take in what a measurement returned."""
        kind, files = results.encode(value)
        known = [entry for entry in self.measures if entry.partition("#")[0] == name]
        same = [entry for entry in known if self.measures[entry]["inputs"] == describe(inputs)]
        entry = same[0] if same else f"{name}#{len(known) + 1}" if known else name
        types = json.loads(files.pop(results.TYPES)) if results.TYPES in files else None
        content = next(iter(files.values()))
        pack = kind == "frame" or (kind == "json" and len(content) > SMALL)
        file = f"{entry.replace('#', '_')}.{results.SUFFIX[kind]}{'.gz' if pack else ''}"
        self.files[file] = packed(content) if pack else content
        self.measures[entry] = {"inputs": describe(inputs), "kind": kind, "file": file, "types": types, "key": key}

    def runs(self, arm: Arm) -> pd.DataFrame:
        """Rows of one arm, with source "recorded".

        Raises:
            NotRecorded: no such arm, or recorded with other settings.
        """
        if arm.label not in self.arms:
            raise NotRecorded(f"{self.slug}: arm {arm.label!r} was never recorded. {near(arm.label, list(self.arms))}")
        entry, wanted = self.arms[arm.label], described_arm(arm)
        for name, value in wanted.items():
            if entry[name] != value:
                raise NotRecorded(
                    f"{self.slug}: arm {arm.label!r} was recorded with {name} {entry[name]}, not {value}."
                )
        return self.frame[self.frame["arm"] == arm.label].assign(source="recorded")

    def measure(self, name: str, inputs: Mapping[str, Any]) -> Any:
        """What a measurement returned.

        Raises:
            NotRecorded: never recorded with these inputs.
        """
        for entry, what in self.measures.items():
            if entry.partition("#")[0] == name and what["inputs"] == describe(inputs):
                try:
                    return self._decoded(what)
                except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
                    raise NotRecorded(f"{self.slug}: {what['file']} is damaged: {error}") from error
        raise NotRecorded(f"{self.slug}: {name}({describe(inputs)}) was never recorded.")

    def _decoded(self, what: Mapping[str, Any]) -> Any:
        content = self.files[what["file"]]
        content = gzip.decompress(content) if what["file"].endswith(".gz") else content
        files = {f"value.{results.SUFFIX[what['kind']]}": content}
        if what["kind"] == "frame":
            files[results.TYPES] = json.dumps(what["types"]).encode()
        return results.decode(what["kind"], files)

    def write(self, folder: Path) -> None:
        """Replace the folder: all of it, or nothing.

        Raises:
            ValueError: more than 300 kB.
            OSError: the folder cannot be written.
        """
        index: dict[str, Any] = {"notebook": self.slug, "preset": self.preset, "code_key": self.code_key}
        index |= {"milliseconds": self.milliseconds}
        index |= {"arms": self.arms, "measures": self.measures}
        order = self.frame.sort_values(["arm", "metric", "seed", "step"], kind="stable")
        table = order[TABLE].to_csv(index=False, lineterminator="\n")
        files = {RUNS: packed(table.encode("utf-8")), INDEX: _json(index), FINGERPRINT: _json(self.fingerprint)}
        files |= self.files
        size = sum(map(len, files.values()))
        if size > LIMIT:
            largest = sorted(files, key=lambda name: -len(files[name]))[:3]
            names = ", ".join(f"{name} {len(files[name]) // 1000} kB" for name in largest)
            raise ValueError(
                f"{self.slug}: recorded data are {size // 1000} kB, the limit is {LIMIT // 1000} ({names})."
            )
        replace_folder(folder, files)

    @classmethod
    def read(cls, folder: Path, slug: str) -> Recorded:
        """Read a folder.

        Raises:
            NotRecorded: there is none, or it is damaged.
        """
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            table = gzip.decompress((folder / RUNS).read_bytes())
            frame = pd.read_csv(io.BytesIO(table), converters={"value": float})
            fingerprint = json.loads((folder / FINGERPRINT).read_text(encoding="utf-8"))
            files = {entry["file"]: (folder / entry["file"]).read_bytes() for entry in index["measures"].values()}
            parts = [index[name] for name in ("preset", "arms", "measures", "code_key", "milliseconds")]
        except FileNotFoundError as error:
            raise NotRecorded(f"{slug}: nothing is recorded yet ({error.filename} is missing).") from None
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise NotRecorded(f"{slug}: {folder} is damaged: {error}") from error
        preset, arms, measures, code_key, milliseconds = parts
        return cls(slug, preset, frame, arms, measures, files, fingerprint, code_key, milliseconds)


def packed(content: bytes) -> bytes:
    """Gzip without a date: the same content gives the same bytes."""
    return gzip.compress(content, compresslevel=9, mtime=0)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put new files in the place of a folder's old ones; where the disk refuses, the old ones stay as they were.

    Folders inside it stay: they hold what a real model gave, which another command records.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        new = work / "new"
        new.mkdir()
        for name, content in files.items():
            (new / name).write_bytes(content)
        for inside in (path for path in folder.glob("*") if path.is_dir()):
            shutil.copytree(inside, new / inside.name)
        if folder.exists():
            os.replace(folder, work / "old")
        os.replace(new, folder)
    except OSError as error:
        if (work / "old").exists() and not folder.exists():
            os.replace(work / "old", folder)
        raise not_written(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)

"""The store of finished runs: one folder per key, complete or not there at all.

An entry is written in a temporary folder and renamed; its `run.json` holds the sha256 of every other file and of
itself, so that a damaged entry is noticed, reported and made again. A file lock per key lets processes share the store.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from rlkit.files import check_writable, not_written

META = "run.json"


class StoreError(OSError):
    """The disk would not take a finished run."""


@dataclass(frozen=True)
class Entry:
    """A finished run as it was stored."""

    meta: dict[str, Any]
    files: dict[str, bytes]
    """Content by file name."""

    def text(self, name: str) -> str:
        """A file's content as text."""
        return self.files[name].decode("utf-8")


@dataclass(frozen=True)
class Damage:
    """Why an entry cannot be used."""

    reason: str


@dataclass(frozen=True)
class Store:
    """Finished runs below a folder: `KEY/` per run, `locks/`, and `tmp/` for what is under way."""

    home: Path

    def folder(self, key: str) -> Path:
        """Where the run of this key is, or would be."""
        return self.home / key

    def lock(self, key: str, timeout: float = -1) -> BaseFileLock:
        """A lock for this key over processes; the system frees it when its holder dies."""
        folder = self.home / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / f"{key}.lock", timeout=timeout)

    def check_writable(self) -> None:
        """Raise StoreError where no run could be kept: before it is trained, not after."""
        try:
            check_writable(self.home)
        except OSError as error:
            raise StoreError(f"No run could be kept. {error} RLKIT_HOME says where runs are kept.") from None

    def read(self, key: str) -> Entry | None:
        """The run of this key; None where there is none, or only a damaged one, which is reported."""
        found = self._load(self.folder(key))
        if isinstance(found, Damage):
            warnings.warn(f"The stored run {self.folder(key)} is damaged ({found.reason}) and is redone.", stacklevel=2)
            return None
        return found

    def _load(self, folder: Path) -> Entry | Damage | None:
        if not folder.is_dir():
            return None
        try:
            record = json.loads((folder / META).read_text(encoding="utf-8"))
            sums = dict(record["sha256"])
            if sums.pop(META) != _checksum(_canonical(record)):
                return Damage(f"{META} has changed")
            files = {name: (folder / name).read_bytes() for name in sums}
        except FileNotFoundError as error:
            return Damage(f"{Path(error.filename).name} is missing")
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            return Damage(f"{META} cannot be read: {error}")
        bad = [name for name, content in files.items() if _checksum(content) != sums[name]]
        return Damage(f"{', '.join(bad)} has changed") if bad else Entry(record["meta"], files)

    def write(self, key: str, meta: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """Store a run: all of it or nothing. Hold the key's lock.

        Raises:
            StoreError: where the disk refuses; nothing is left behind.
        """
        record: dict[str, Any] = {"meta": dict(meta), "sha256": {name: _checksum(data) for name, data in files.items()}}
        record["sha256"][META] = _checksum(_canonical(record))
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        temporary = None
        try:
            (self.home / "tmp").mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=self.home / "tmp", prefix=f"{key}-"))
            temporary.chmod(0o755)  # mkdtemp makes folders that only their owner may enter
            for name, data in {**files, META: text.encode("utf-8")}.items():
                (temporary / name).write_bytes(data)
            self.discard(key)
            os.replace(temporary, self.folder(key))
        except BaseException as error:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError):
                raise StoreError(f"A finished run could not be stored. {not_written(self.home, error)}") from error
            raise

    def discard(self, key: str) -> None:
        """Remove the run of this key. It is renamed first, so that nobody meets half of it."""
        folder = self.folder(key)
        if folder.exists():
            trash = Path(tempfile.mkdtemp(dir=self._made("tmp"), prefix=f"{key}-"))
            os.replace(folder, trash / "old")
            shutil.rmtree(trash, ignore_errors=True)

    def workspace(self, key: str) -> contextlib.AbstractContextManager[Path]:
        """A temporary folder for what a run writes while it trains; removed when it ends, or by the next `tidy`."""
        return _workspace(self._made("tmp"), key)

    def _made(self, name: str) -> Path:
        (self.home / name).mkdir(parents=True, exist_ok=True)
        return self.home / name

    def keys(self) -> list[str]:
        """Keys of all entries, damaged ones included."""
        return [path.name for path in _listed(self.home) if path.is_dir() and path.name not in {"tmp", "locks"}]

    def size(self) -> tuple[int, int]:
        """(number of runs, bytes of everything in the store)."""
        files = (path for path in self.home.rglob("*") if path.is_file()) if self.home.is_dir() else ()
        return len(self.keys()), sum(_size(path) for path in files)

    def clear(self) -> int:
        """Remove all finished runs and return how many there were; a run under way in another process stays."""
        gone = 0
        for key in self.keys():
            with contextlib.suppress(Timeout), self.lock(key, timeout=0):
                self.discard(key)
                gone += 1
        self.tidy()
        return gone

    def tidy(self) -> None:
        """Remove the temporary folders of dead processes: those whose key nobody has locked."""
        for folder in _listed(self.home / "tmp"):
            with contextlib.suppress(Timeout, OSError), self.lock(folder.name.split("-", 1)[0], timeout=0):
                shutil.rmtree(folder, ignore_errors=True)


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # removed by another process meanwhile
        return 0


@contextlib.contextmanager
def _workspace(parent: Path, key: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=f"{key}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(record: Mapping[str, Any]) -> bytes:
    """What run.json says, in one fixed form, without the checksum of itself."""
    sums = {name: value for name, value in record["sha256"].items() if name != META}
    return json.dumps({"meta": record["meta"], "sha256": sums}, sort_keys=True).encode("utf-8")

"""A disk that takes no more in the middle of a file: the old file stays, no part of the new one does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlkit import plots
from rlkit.claims import Claim, judge, write_claims
from rlkit.files import write_all, write_atomic
from rlkit.recorded import replace_folder
from rlkit.runs import measure
from rlkit.runs.store import Store, StoreError
from tests.faults.injected import full_disk, tree
from tests.tiny import Build, history

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no limit for the size of files")
TOLD = r"Cannot write .*{name}.*: File too large\. Let this process write larger files"


def _figure(folder: Path) -> None:
    plots.save(plots.points({"a": [0.1, 0.2]}), folder / "accuracy")


def _claims(folder: Path) -> None:
    claim = Claim("wins", "It wins.", "difference", ">", 0.0, "share", "supported")
    write_claims(folder / "claims.json", "demo", "full", "k", [judge(claim, [1.0, 2.0])])


def _several(folder: Path) -> None:
    write_all({folder / "small": b"1", folder / "large": b"2" * 100})


def _recorded(folder: Path) -> None:
    replace_folder(folder / "demo", {"a": b"1", "b": b"2" * 100})


WRITERS: list[tuple[Callable[[Path], None], str]] = [
    (_figure, "accuracy.svg"),
    (_claims, "claims.json"),
    (_several, "large"),
    (_recorded, "demo"),
]


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize(("write", "name"), WRITERS, ids=[name for _, name in WRITERS])
def test_a_full_disk_leaves_old_files_whole(
    tmp_path: Path, write: Callable[[Path], None], name: str, old: bool
) -> None:
    if old:
        write(tmp_path)
    before = tree(tmp_path)
    with full_disk(free=10), pytest.raises(OSError, match=TOLD.format(name=name)):
        write(tmp_path)
    assert tree(tmp_path) == before
    write(tmp_path)
    assert len(tree(tmp_path)) >= len(before)


def test_a_device_without_space_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own ENOSPC: the temporary file is `/dev/full`."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")

    def device(dir: Path, prefix: str, suffix: str) -> tuple[int, str]:
        return os.open("/dev/full", os.O_WRONLY), str(tmp_path / "temporary")

    monkeypatch.setattr("rlkit.files.tempfile.mkstemp", device)
    with pytest.raises(OSError, match=r"Cannot write .*/run\.json: No space left on device\. Free some space"):
        write_atomic(tmp_path / "run.json", "{}")
    assert tree(tmp_path) == {}


def test_a_full_disk_keeps_finished_runs_and_no_part_of_a_new_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    store.write("old", {}, {"metrics.csv": b"1"})
    before = tree(tmp_path)
    for key in ("old", "new"):
        with full_disk(free=200), pytest.raises(StoreError, match=r"could not be stored\. Cannot write .*home: File"):
            store.write(key, {}, {"metrics.csv": b"2" * 300})
    assert tree(tmp_path) == before
    assert list((store.home / "tmp").iterdir()) == []
    assert store.read("old") is not None


def numbers() -> list[int]:
    return list(range(1000))


def test_a_full_disk_loses_no_result_of_a_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path))
    with full_disk(free=200), pytest.warns(UserWarning, match=r"File too large.*is kept in memory only"):
        found = measure(numbers)
    assert found == numbers() and Store(tmp_path).keys() == []


@pytest.mark.parametrize("free", [10, 10_000, 50_000], ids=["memory", "weights", "optimizer"])
def test_a_full_disk_leaves_no_half_of_a_checkpoint_and_the_one_before(build: Build, tmp_path: Path, free: int) -> None:
    """Whatever file of it does not fit; training goes on from the checkpoint before, as if nothing had happened."""
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "max_steps": 3}
    whole = build(**options)
    whole.train()
    first = str((tmp_path / "checkpoint-1").rename(tmp_path / "first"))
    with full_disk(free), pytest.raises(OSError, match=r"Cannot write .*checkpoint-2: .*goes on from the one before"):
        build(**options).train(resume_from_checkpoint=first)
    assert not (tmp_path / "checkpoint-2").exists()
    again = build(**options)
    again.train(resume_from_checkpoint=first)
    assert history(again, "loss", "reward")[1:] == history(whole, "loss", "reward")[1:]

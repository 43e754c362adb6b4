from __future__ import annotations

import json
import multiprocessing
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from filelock import Timeout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlkit.runs.store import Store

FILES = {"metrics.csv": b"arm,seed\ngrpo,0\n", "timing.csv": b"x\n"}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return Store(tmp_path / "home")


def test_what_was_written_reads_back(store: Store) -> None:
    store.write("k1", {"name": "grpo"}, FILES)
    entry = store.read("k1")
    assert entry.files == FILES
    assert entry.meta == {"name": "grpo"}
    assert entry.text("timing.csv") == "x\n"
    assert store.read("other") is None
    assert sorted(path.name for path in store.folder("k1").iterdir()) == ["metrics.csv", "run.json", "timing.csv"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip, empty, Path.unlink])
@pytest.mark.parametrize("name", ["metrics.csv", "timing.csv", "run.json"])
def test_a_damaged_run_is_reported_and_redone(store: Store, damage: Any, name: str) -> None:
    store.write("k1", {"name": "grpo"}, FILES)
    damage(store.folder("k1") / name)
    with pytest.warns(UserWarning, match=r"damaged .* redone"):
        assert store.read("k1") is None
    store.write("k1", {"name": "grpo"}, FILES)
    assert store.read("k1").files == FILES


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_single_flipped_bit_is_noticed(store: Store, data: Any) -> None:
    store.write("k1", {"name": "grpo", "settings": [["beta", "0.0", "preset"]]}, FILES)
    path = store.folder("k1") / data.draw(st.sampled_from([*FILES, "run.json"]))
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = store.read("k1")
    # white space in run.json may change without changing what it says
    assert found is None or (path.name == "run.json" and found.files == FILES and found.meta["name"] == "grpo")


def test_meta_that_is_no_json_is_an_error_before_anything_is_written(store: Store) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        store.write("k1", {"value": float("nan")}, FILES)
    assert store.keys() == []


def test_size_and_clear(store: Store) -> None:
    assert store.size() == (0, 0)
    for key in ("k1", "k2"):
        store.write(key, {}, FILES)
    count, size = store.size()
    assert count == 2
    assert size > 2 * sum(map(len, FILES.values()))
    assert store.clear() == 2
    assert store.size()[0] == 0


def test_clear_leaves_a_run_under_way(store: Store) -> None:
    store.write("k1", {}, FILES)
    with store.lock("k1"):
        assert store.clear() == 0
    assert store.read("k1") is not None


def test_tidy_removes_what_the_dead_left_and_nothing_else(store: Store) -> None:
    store.write("k1", {}, FILES)
    left = store.home / "tmp" / "dead-abc"
    left.mkdir()
    (left / "metrics.csv").write_bytes(b"half")
    with store.lock("alive"), store.workspace("alive") as folder:
        store.tidy()
        assert folder.is_dir()
        assert not left.exists()
    assert not folder.exists()
    assert store.read("k1") is not None


def hold(home: Path, ready: Any, go: Any) -> None:
    with Store(home).lock("k1"):
        ready.set()
        go.wait(30)
        os._exit(9)  # dies with the lock


def test_a_lock_excludes_another_process_and_dies_with_it(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    other = context.Process(target=hold, args=(store.home, ready, go))
    other.start()
    assert ready.wait(30)
    with pytest.raises(Timeout), store.lock("k1", timeout=0.05):
        pass
    go.set()
    other.join(30)
    with store.lock("k1", timeout=5):
        pass


def test_run_json_says_what_it_is(store: Store) -> None:
    store.write("k1", {"name": "grpo", "seed": 3}, FILES)
    record = json.loads((store.folder("k1") / "run.json").read_text(encoding="utf-8"))
    assert record["meta"] == {"name": "grpo", "seed": 3}
    assert set(record["sha256"]) == {"metrics.csv", "timing.csv", "run.json"}

"""Kill -9 of a worker in mid-training: its run is named, the others are kept, and the same call does the rest."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rlkit
from rlkit.runs import RunError, arm, pool

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")]
SHAPE: dict[str, Any] = {"preset": "smoke", "prompts_per_step": 1, "num_generations": 4, "max_steps": 3}
SHAPE |= {"train_size": 8, "eval_size": 2, "eval_every": 1, "seeds": 1, "progress": False}


@pytest.fixture
def workers() -> Iterator[None]:
    yield
    pool.stop()


def stored(home: Path) -> dict[str, tuple[bytes, int]]:
    """Metrics of each stored run, and when they were written."""
    return {p.parent.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in home.glob("*/metrics.csv")}


def killed(seed: int) -> int:
    if seed == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return seed


def test_the_guilty_job_alone_is_blamed_where_it_comes_first_and_takes_the_pool_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: None
) -> None:
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path))
    with pytest.raises(RunError, match=r"1 of 6 .*failed") as caught:
        rlkit.measure(killed, seeds=6, workers=2)
    assert str(caught.value).count("killed twice") == 1


def test_the_run_of_a_killed_worker_is_named_and_the_same_call_does_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: None
) -> None:
    doom = str(tmp_path / "doom")

    def deadly(completions: Sequence[Any], trainer_state: Any, **columns: Any) -> list[float]:
        if trainer_state.global_step == 1 and os.path.exists(doom):
            os.kill(os.getpid(), signal.SIGKILL)
        return [float(len(text)) for text in completions]

    arms = [arm("dr_grpo", "good"), arm("grpo", "bad", reward=deadly)]
    Path(doom).touch()
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "broken"))
    with pytest.raises(RunError, match=r"1 of 2 runs failed. .*kept.\n'bad', seed 0: .*killed twice"):
        rlkit.run(arms, workers=1, **SHAPE)
    kept = stored(tmp_path / "broken")
    assert len(kept) == 1
    Path(doom).unlink()
    rlkit.run(arms, workers=1, **SHAPE)
    again = stored(tmp_path / "broken")
    assert len(again) == 2 and kept.items() <= again.items()  # what was kept was not written again
    assert not list((tmp_path / "broken" / "tmp").iterdir())
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "whole"))
    rlkit.run(arms, workers=0, **SHAPE)
    undisturbed = stored(tmp_path / "whole")
    assert {key: text for key, (text, _) in again.items()} == {key: text for key, (text, _) in undisturbed.items()}

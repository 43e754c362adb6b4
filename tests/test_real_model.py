"""A notebook's part for a real model. The preset that trains one is the tiny preset under its name here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rlkit
from rlkit import paths, presets
from rlkit.recorded import Recorded, described_arm, replace_folder
from rlkit.study import Study

TINY = {"prompts_per_step": 2, "num_generations": 4, "max_steps": 1, "train_size": 32, "eval_size": 4}
ARMS = [rlkit.arm("dr_grpo", "mean", role="baseline", **TINY)]
REAL = {"small": [rlkit.arm("dr_grpo", "mean", reward="digits", role="baseline", tier="full", **TINY)]}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a tiny part that is recorded."""
    for name in ("FRESH", "RECORDED", "RECORD", "OUTPUT", "WRITE", "WORKERS"):
        monkeypatch.delenv(f"RLKIT_{name}", raising=False)
    monkeypatch.setenv("RLKIT_ROOT", str(tmp_path))
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "home"))
    small = dataclasses.replace(presets.PRESETS["smoke"], name="small", real=True)
    monkeypatch.setitem(presets.PRESETS, "small", small)
    data = Recorded("demo")
    frame = [("mean", seed, step, "accuracy", 0.1 * step) for seed in range(5) for step in (0, 1)]
    data.add_runs(ARMS, pd.DataFrame(frame, columns=["arm", "seed", "step", "metric", "value"]), {})
    data.write(tmp_path / "data" / "recorded" / "demo")
    return tmp_path


def notebook(preset: str, **options: Any) -> Any:
    study = Study("demo", preset=preset, **options)
    tiny = study.run(ARMS, keep=["accuracy"], workers=0, progress=False)
    return tiny, study.real_model(REAL, ["accuracy", "reward"], title="Does it learn?")


def test_a_real_preset_reads_the_tiny_part_and_trains_its_own(workspace: Path) -> None:
    before = (workspace / "data" / "recorded" / "demo" / "recorded.json").read_bytes()
    tiny, real = notebook("small")
    assert tiny.value("accuracy").loc["mean"].tolist() == pytest.approx([0.1] * 5)
    assert set(real.frame["metric"]) == {"accuracy", "reward"} and set(real.frame["seed"]) == {0}
    assert (workspace / "build" / "figures" / "small" / "demo" / "real_model.svg").is_file()
    assert (workspace / "data" / "recorded" / "demo" / "recorded.json").read_bytes() == before
    assert not (workspace / "data" / "recorded" / "demo" / "small").exists()


def test_steps_are_those_of_the_real_part_where_the_tiny_part_is_read(workspace: Path) -> None:
    """The recorded steps in slow motion were taken with the steps of the preset `full`."""
    study = Study("demo", preset="small", steps=2)
    place = {"arm": {"label": "mean", **described_arm(ARMS[0])}, "preset": None, "seed": 0, "common": {}}
    data = Recorded.read(paths.recorded("demo"), "demo")
    data.add_measure("previewed", {**place, "at": [0], "groups": 2, "prompts": None}, "key", [])
    data.write(paths.recorded("demo", write=True))
    assert study.preview(ARMS[0], at=[0]) == []
    study.run(ARMS, keep=["accuracy"], workers=0, progress=False)
    real = study.real_model(REAL, title="Does it learn?")
    assert real is not None and real.frame["step"].max() == 2


def test_what_is_recorded_is_shown_elsewhere_and_survives_a_new_record(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert notebook("smoke")[1] is None
    assert "rlkit figures demo --preset gpu" in capsys.readouterr().out
    monkeypatch.setenv("RLKIT_RECORD", "1")
    _, trained = notebook("small", seeds=2)
    monkeypatch.delenv("RLKIT_RECORD")
    folder = workspace / "data" / "recorded" / "demo"
    assert Recorded.read(folder / "small", "demo").preset == "small"
    shown = notebook("smoke")[1]
    assert shown.value("reward").loc["mean"].tolist() == pytest.approx(trained.value("reward").loc["mean"].tolist())
    replace_folder(folder, {"recorded.json": (folder / "recorded.json").read_bytes()})
    assert (folder / "small" / "recorded.json").is_file() and not (folder / "fingerprint.json").exists()


def test_the_parameter_model_replaces_that_of_the_arms(workspace: Path) -> None:
    with pytest.raises(rlkit.runs.RunError, match="nosuch"):
        notebook("small", model="nosuch")


def test_a_real_preset_without_arms_is_an_error(workspace: Path) -> None:
    with pytest.raises(ValueError, match="no arms for preset 'small', only for gpu"):
        Study("demo", preset="small").real_model({"gpu": REAL["small"]}, title="?")

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest

import rlkit
from rlkit.claims import read_claims
from rlkit.recorded import LIMIT, NotRecorded, Recorded, describe, kept, replace_folder
from rlkit.runs import training
from rlkit.study import Study

SMALL = {"prompts_per_step": 2, "num_generations": 4, "max_steps": 1, "train_size": 32, "eval_size": 4}
ARMS = [
    rlkit.arm("dr_grpo", "mean", role="baseline", **SMALL),
    rlkit.arm("mc_grpo", "median", role="method", **SMALL),
    rlkit.arm("mc_grpo", "median mad", tier="full", scale="mad", **SMALL),
]
KEEP = ["accuracy", "reward", "generated_tokens"]
CLAIMS = [
    rlkit.Claim("gain", "The median gains.", "median - mean", ">", 0.0, "accuracy", "inconclusive", controls=["mean"]),
    rlkit.Claim("positive", "x is positive.", "mean x", ">", 0.0, "", "supported", over="sample"),
]


def coin(n: int) -> Any:
    return pd.DataFrame({"x": np.random.default_rng(0).random(n), "name": ["a"] * n})


def notebook(preset: Any = "full", **options: Any) -> Any:
    """What a notebook does: arms, a measurement, a figure, verdicts."""
    study = Study("demo", preset=preset, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nothing was learnable")
        runs = study.run(ARMS, keep=KEEP, workers=0, progress=False)
    table = study.measure(coin, n=50)
    study.figure("accuracy", runs.plot("accuracy"), caption="Accuracy over steps.")
    values = {"gain": runs.difference("accuracy", "median", "mean"), "positive": table["x"]}
    return study, runs, study.judge(CLAIMS, values)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RLKIT_FRESH", "RLKIT_RECORDED", "RLKIT_OUTPUT", "RLKIT_WRITE", "RLKIT_WORKERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A workspace in which the preset full was run once; tests that write take a copy."""
    root = tmp_path_factory.mktemp("full")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RLKIT_FRESH", "RLKIT_RECORDED", "RLKIT_OUTPUT", "RLKIT_WRITE", "RLKIT_WORKERS"):
            patch.delenv(name, raising=False)
        patch.setenv("RLKIT_ROOT", str(root))
        patch.setenv("RLKIT_HOME", str(root / "home"))
        notebook()
    return root


@pytest.fixture
def workspace(full: Path, clean: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RLKIT_ROOT", str(full))
    monkeypatch.setenv("RLKIT_HOME", str(full / "home"))
    return full


def files(folder: Path) -> Any:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(training, "train", never)


def test_a_full_run_writes_figures_claims_and_recorded_data(workspace: Path) -> None:
    assert set(files(workspace / "figures" / "demo")) == {"accuracy.svg", "accuracy.png", "claims.json"}
    written = files(workspace / "data" / "recorded" / "demo")
    assert set(written) == {"runs.csv.gz", "recorded.json", "fingerprint.json", "coin.csv.gz"}
    assert not list((workspace / "data" / "recorded").glob(".*"))
    document = read_claims(workspace / "figures" / "demo" / "claims.json")
    assert (document["notebook"], document["preset"]) == ("demo", "full")
    assert [(claim["seeds"], claim["n"]) for claim in document["claims"]] == [(5, 5), (None, 50)]


def test_recorded_data_hold_only_what_is_kept(workspace: Path) -> None:
    recorded = Recorded.read(workspace / "data" / "recorded" / "demo", "demo")
    assert set(recorded.frame["metric"]) == set(KEEP)
    assert set(recorded.frame["arm"]) == {"mean", "median", "median mad"}
    assert sorted(recorded.arms["median"]["keys"]) == ["0", "1", "2", "3", "4"]


def test_recorded_mode_redraws_byte_for_byte_without_training(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = files(workspace / "figures" / "demo"), files(workspace / "data" / "recorded" / "demo")
    monkeypatch.setenv("RLKIT_RECORDED", "1")
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "empty"))
    forbid_training(monkeypatch)
    study, runs, _ = notebook()
    assert (files(workspace / "figures" / "demo"), files(workspace / "data" / "recorded" / "demo")) == before
    assert study.code_key == read_claims(workspace / "figures" / "demo" / "claims.json")["code_key"]
    assert set(runs.frame["source"]) == {"run"}


def test_recorded_mode_refuses_what_was_not_recorded(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLKIT_RECORDED", "1")
    forbid_training(monkeypatch)
    study = Study("demo", preset="full")
    with pytest.raises(NotRecorded, match=r"arm 'medain' was never recorded.*'median'"):
        study.run([rlkit.arm("mc_grpo", "medain", **SMALL)], keep=KEEP)
    with pytest.raises(NotRecorded, match="settings"):
        study.run([rlkit.arm("mc_grpo", "median", scale="std", **SMALL)], keep=KEEP)
    with pytest.raises(NotRecorded, match="method"):
        study.run([rlkit.arm("grpo", "median", **SMALL)], keep=KEEP)
    with pytest.raises(NotRecorded, match=r"coin\(\{'n': 51\}\)"):
        study.measure(coin, n=51)
    with pytest.raises(NotRecorded, match="nothing is recorded yet"):
        Study("other", preset="full").measure(coin, n=50)


def test_cells_can_be_run_again(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(workspace / "figures" / "demo"), files(workspace / "data" / "recorded" / "demo")
    forbid_training(monkeypatch)  # all runs come from the store
    notebook()
    assert (files(workspace / "figures" / "demo"), files(workspace / "data" / "recorded" / "demo")) == before


def test_a_smaller_preset_leaves_committed_files_alone_and_fills_in_recorded_arms(workspace: Path) -> None:
    before = files(workspace / "figures"), files(workspace / "data")
    study, runs, verdicts = notebook("tiny")
    assert (files(workspace / "figures"), files(workspace / "data")) == before
    assert study.output == workspace / "build" / "figures" / "tiny" / "demo"
    assert (study.output / "claims.json").is_file()
    sources = runs.frame.groupby("arm")["source"].unique().map(list).to_dict()
    assert sources == {"mean": ["run"], "median": ["run"], "median mad": ["recorded"]}
    assert runs.value("accuracy").notna().sum(axis=1).to_dict() == {"mean": 3, "median": 3, "median mad": 5}
    assert verdicts.table.loc["positive", "committed"] == "supported"
    assert verdicts.table.loc["gain", "verdict"].startswith("preliminary")
    handed_in = pd.read_csv(study.output / "runs.csv")
    assert set(handed_in["arm"]) == {"mean", "median"} and set(handed_in["seed"]) == {0, 1, 2}
    assert handed_in.groupby("arm")["role"].first().to_dict() == {"mean": "baseline", "median": "method"}


@pytest.mark.parametrize("changed", [{"seeds": 2}, {"steps": 2}, {"model": "chain"}, {"seeds": [3, 4]}])
def test_a_full_run_with_something_changed_writes_to_build(workspace: Path, changed: Any) -> None:
    study = Study("demo", preset="full", **changed)
    assert (study.writes, study.output) == (False, workspace / "build" / "figures" / "full" / "demo")


def test_a_changed_parameter_of_the_notebooks_own_counts_as_a_change(workspace: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell('preset = "tiny"\nprompts = 64', metadata={"tags": ["parameters"]})]
    (workspace / "notebooks").mkdir(exist_ok=True)
    nbformat.write(notebook, workspace / "notebooks" / "07_own.ipynb")
    assert Study("own", preset="full", prompts=64).writes
    assert not Study("own", preset="full", prompts=32).writes


def test_the_runner_can_send_the_output_elsewhere(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RLKIT_OUTPUT", str(tmp_path / "out"))
    study = Study("demo", preset="full")
    assert (study.writes, study.output) == (False, tmp_path / "out")


def test_only_kept_metrics_can_be_read_and_misspelt_ones_list_near_ones(workspace: Path) -> None:
    study = Study("demo", preset="full")
    runs = study.run(ARMS[:1], keep=["accuracy"], workers=0, progress=False)
    with pytest.raises(ValueError, match="No metric 'reward'"):
        runs.value("reward")
    with pytest.raises(ValueError, match="'accuracy'"):
        study.run(ARMS[:1], keep=["acuracy"], workers=0, progress=False)


def test_claims_and_values_must_match(workspace: Path) -> None:
    study = Study("demo", preset="tiny")
    with pytest.raises(ValueError, match="'positive' is in one of them only"):
        study.judge(CLAIMS, {"gain": [0.1]})
    with pytest.raises(ValueError, match="'gain', median - mean"):
        study.judge(CLAIMS[:1], {"gain": [0.1, float("nan")]})


def test_too_much_recorded_data_is_refused_before_anything_is_replaced(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace / "data" / "recorded" / "demo"
    before = files(folder)
    recorded = Recorded.read(folder, "demo")
    recorded.files["noise.npz"] = np.random.default_rng(0).bytes(LIMIT)
    with pytest.raises(ValueError, match=r"the limit is 300 \(noise\.npz 300 kB"):
        recorded.write(folder)
    assert files(folder) == before


@pytest.mark.parametrize("name", ["recorded.json", "runs.csv.gz", "fingerprint.json", "coin.csv.gz"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_damaged_recorded_data_say_so(workspace: Path, tmp_path: Path, name: str, damage: Any) -> None:
    folder = tmp_path / "demo"
    replace_folder(folder, files(workspace / "data" / "recorded" / "demo"))
    if damage == "missing":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes((folder / name).read_bytes()[:20])
    with pytest.raises(NotRecorded):
        Recorded.read(folder, "demo").measure("coin", {"n": 50})


def test_settings_are_described_without_addresses() -> None:
    noisy = rlkit.rewards.Noisy("graded", rate=0.2)
    assert describe(noisy) == {"type": "Noisy", "base": "graded", "rate": 0.2, "size": 5.0, "two_sided": False}
    assert describe(coin) == "function coin"
    assert json.dumps(describe({"a": [np.zeros(2), (1, None)]}))
    assert "0x" not in json.dumps(describe([object(), lambda: 1, coin]))


def test_kept_values_have_7_digits() -> None:
    frame = pd.DataFrame({"arm": "a", "seed": 0, "step": [1, 2], "metric": ["m", "n"], "value": [1 / 3, 2.0]})
    assert kept(frame, ["m"])["value"].tolist() == [0.3333333]


def test_measurements_of_one_function_with_other_inputs_are_kept_apart() -> None:
    recorded = Recorded("demo")
    recorded.add_measure("coin", {"n": 2}, "k", coin(2))
    recorded.add_measure("coin", {"n": 3}, "k", coin(3))
    recorded.add_measure("coin", {"n": 3}, "k", coin(3))  # the cell is run again
    assert sorted(recorded.files) == ["coin.csv.gz", "coin_2.csv.gz"]
    assert len(recorded.measure("coin", {"n": 3})) == 3
    pd.testing.assert_frame_equal(recorded.measure("coin", {"n": 2}), coin(2))


def test_the_budget_is_arms_times_seeds_times_steps(workspace: Path) -> None:
    study = Study("other", preset="tiny")
    assert study.budget(ARMS) == "Budget: 2 arms x 3 seeds, 6 steps."
    assert study.budget(ARMS, milliseconds=200) == "Budget: 2 arms x 3 seeds, 6 steps x 200 ms = 0.0 min of one core."
    assert " ms = " in Study("demo", preset="full").budget(ARMS)

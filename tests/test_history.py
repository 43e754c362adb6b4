from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rlkit
from rlkit import history
from rlkit.method import Method
from rlkit.recorded import NotRecorded
from rlkit.runs import Runs, arm, results, run, training
from rlkit.runs.examples import Examples, drawn_now, name_of
from rlkit.runs.keys import Run
from rlkit.study import Study

SMALL = {"prompts_per_step": 2, "num_generations": 4, "max_steps": 4, "train_size": 8, "eval_every": 2, "eval_size": 8}


def trained(folder: Path, method: Any = "dr_grpo", **overrides: Any) -> Any:
    settings = {**SMALL, **overrides}
    reward = settings.pop("reward", None)
    return training.train(Run(method, "smoke", 0, reward=reward, overrides=settings), folder)


def rollout_accuracy(result: Any) -> dict[int, float]:
    return {step: value for step, name, value in result.metrics if name == "rollout_accuracy"}


def shares(table: pd.DataFrame) -> dict[int, float]:
    sums = table.groupby("step")[["right", "rollouts"]].sum()
    return (sums["right"] / sums["rollouts"]).to_dict()


# What a run counts ------------------------------------------------------------------------------------------------


def test_rollouts_right_ones_and_rewards_are_counted_by_step_and_example(tmp_path: Path) -> None:
    seen: list[Any] = []

    def spy(completions: list[str], gold: Any, id: Any, **columns: Any) -> Any:
        rewards = [len(text) / 8 for text in completions]  # says nothing about right or wrong
        right = [text.endswith(f"#{answer}") for text, answer in zip(completions, gold, strict=True)]
        seen.append(list(zip(id, right, rewards, strict=True)))
        return rewards

    result = trained(tmp_path, reward=spy)
    table = result.tables["examples"]
    assert list(table.columns) == ["step", "id", "rollouts", "right", "reward"]
    assert len(seen) == 4  # one call a step: evaluation grades without a reward
    for step, rows in enumerate(seen, start=1):
        part = table[table["step"] == step].set_index("id")
        assert sorted(part.index) == sorted({name for name, _, _ in rows})
        for name in part.index:
            own = [(right, reward) for other, right, reward in rows if other == name]
            found = part.loc[name]
            assert (found["rollouts"], found["right"]) == (len(own), sum(right for right, _ in own))
            assert found["reward"] == pytest.approx(sum(reward for _, reward in own) / len(own))
    assert shares(table) == pytest.approx(rollout_accuracy(result))


def test_what_is_drawn_between_two_logging_steps_is_added_up(tmp_path: Path) -> None:
    result = trained(tmp_path, logging_steps=2)
    table = result.tables["examples"]
    assert set(table["step"]) == {2, 4}
    assert table["rollouts"].sum() == 4 * 2 * 4
    assert shares(table) == pytest.approx(rollout_accuracy(result))


def test_nothing_counts_that_the_policy_did_not_draw_to_train_on(tmp_path: Path) -> None:
    def collects(trainer: Any, batch: Any) -> Any:
        trainer.collect([trainer.train_dataset[0]] * 4)
        return batch

    table = trained(tmp_path, Method("collects", batch=collects), eval_every=1).tables["examples"]
    assert table["rollouts"].tolist() == [4] * 8
    with_expert = trained(tmp_path, "luffy").tables["examples"]
    assert with_expert["rollouts"].tolist() == [3] * 8  # the fourth is a worked solution
    assert drawn_now([{"age": 0}, {"age": 2}, {"expert": 1}, {}], 4) == [True, False, False, True]


def test_replayed_rows_are_not_counted_twice(tmp_path: Path) -> None:
    assert trained(tmp_path, "replay_uniform").tables["examples"]["rollouts"].tolist() == [4] * 8


def test_unscorable_rewards_are_left_out_and_without_gold_nothing_is_right_or_wrong() -> None:
    seen = Examples()
    rows = [{"id": 7, "prompt": "a"}] * 2 + [{"id": 8, "prompt": "b"}] * 2
    seen.add(1, rows, [1.0, 0.0, 1.0, 1.0], [math.nan, 0.5, math.nan, math.nan])
    table = seen.frame([1])
    assert table["id"].tolist() == ["7", "8"]
    assert table["right"].tolist() == [1, 2]
    assert table["right"].dtype == "int64"
    assert table["reward"].tolist() == pytest.approx([0.5, math.nan], nan_ok=True)
    seen = Examples()
    seen.add(1, rows, None, [0.0, 1.0, 2.0, 3.0])
    assert seen.frame([1])["right"].isna().all()
    assert seen.frame([])["reward"].tolist() == [0.5, 2.5]  # a step that was never logged keeps its own number


def test_an_example_without_id_is_named_by_its_prompt() -> None:
    chat = [{"role": "user", "content": "2+2?"}]
    assert name_of({"prompt": "2+2?"}) == "prompt-75f72b2fbd36"  # the same in every process
    assert name_of({"prompt": chat}) == name_of({"prompt": [dict(chat[0])]}) != name_of({"prompt": "2+2?"})
    assert name_of({"prompt": "2+2?", "id": 0}) == "0"


# Tables of runs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "home"))
    for name in ("RLKIT_FRESH", "RLKIT_WORKERS", "RLKIT_RECORDED", "RLKIT_OUTPUT", "RLKIT_WRITE"):
        monkeypatch.delenv(name, raising=False)


def test_tables_are_stored_beside_the_metrics_and_come_back_with_arm_and_seed(home: None, tmp_path: Path) -> None:
    def again() -> Runs:
        return run([arm("dr_grpo", "mean")], preset="smoke", seeds=2, workers=0, progress=False, **SMALL)

    table = again().table("examples")
    assert list(table.columns) == ["arm", "seed", "step", "id", "rollouts", "right", "reward"]
    assert table.groupby(["arm", "seed"])["rollouts"].sum().to_dict() == {("mean", 0): 32, ("mean", 1): 32}
    assert len(list((tmp_path / "home").glob("*/examples.csv"))) == 2
    pd.testing.assert_frame_equal(again().table("examples"), table)  # from the store
    with pytest.raises(ValueError, match=r"no table 'exmples'. They have 'examples'"):
        again().table("exmples")


def runs_of(*histories: tuple[str, int, list[tuple[int, str, int, float]]]) -> Runs:
    """Runs with nothing but tables: (arm, seed, [(step, id, rollouts, right)])."""
    frame = pd.DataFrame(columns=["arm", "seed", "step", "metric", "value", "source"])
    stored = []
    for label, seed, rows in histories:
        table = pd.DataFrame(rows, columns=["step", "id", "rollouts", "right"]).assign(reward=0.0)
        stored.append((label, seed, *results.frame_files(table)))
    return Runs([], frame, frame, stored={"examples": stored} if stored else {})


TWO_SEEDS = (
    ("a", 0, [(1, "x", 4, 0), (2, "x", 4, 4), (2, "y", 2, 1), (4, "y", 4, 3)]),
    ("a", 1, [(1, "x", 4, 2), (3, "z", 4, 4)]),
)


def test_accuracy_is_right_over_rollouts() -> None:
    table = history.accuracy(runs_of(*TWO_SEEDS))
    assert table["id"].tolist() == ["x", "x", "y", "y", "x", "z"]
    assert table["step"].tolist() == [1, 2, 2, 4, 1, 3]
    assert table["accuracy"].tolist() == [0.0, 1.0, 0.5, 0.75, 0.5, 1.0]


def test_variance_is_the_populations_over_the_steps_that_drew_the_example() -> None:
    table = history.variance(runs_of(*TWO_SEEDS)).set_index(["seed", "id"])
    assert table.loc[(0, "x")].drop("arm").to_dict() == {
        "visits": 2,
        "rollouts": 8,
        "mean": 0.5,
        "var": 0.25,
        "std": 0.5,
    }
    assert table.loc[(0, "y"), "var"] == 0.125**2
    assert (table.loc[(1, "z"), "visits"], table.loc[(1, "z"), "var"]) == (1, 0.0)


def test_windows_average_rollouts_then_seeds_and_leave_gaps() -> None:
    table = history.windowed(history.accuracy(runs_of(*TWO_SEEDS)), windows=2)
    assert list(table.columns) == [2, 4]
    assert table.loc["x"].tolist() == pytest.approx([0.5, math.nan], nan_ok=True)  # (4/8 + 2/4) / 2
    assert table.loc["y"].tolist() == [0.5, 0.75]
    assert table.loc["z"].tolist() == pytest.approx([math.nan, 1.0], nan_ok=True)
    whole = history.windowed(history.accuracy(runs_of(("a", 0, [(1, "x", 1, 1), (5, "x", 1, 0)]))), windows=3)
    assert list(whole.columns) == [2, 4, 5]  # the window that drew nothing is there
    assert math.isnan(whole.loc["x", 4])


def test_the_heat_map_is_sorted_and_shows_gaps() -> None:
    figure = history.heat(runs_of(*TWO_SEEDS), windows=2, title="Who learns when")
    panel = figure.axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["z", "y", "x"]
    assert [text.get_text() for text in panel.texts] == ["", "1.0", "0.5", "0.8", "0.5", ""]
    assert panel.images[0].get_clim() == (0.0, 1.0)
    words = " ".join(text.get_text() for text in figure.texts)
    assert "those of 2 seeds that drew it" in words
    assert "An empty cell: not drawn" in words
    few = history.heat(runs_of(*TWO_SEEDS), windows=2, most=1)
    assert [label.get_text() for label in few.axes[0].get_yticklabels()] == ["y"]  # drawn in both windows
    assert "1 of 3 examples" in " ".join(text.get_text().replace("\n", " ") for text in few.texts)


def test_errors_say_what_to_do() -> None:
    both = runs_of(("a", 0, [(1, "x", 4, 1)]), ("b", 0, [(1, "x", 4, 1)]))
    with pytest.raises(ValueError, match=r"name it with arm=.*'a', 'b'"):
        history.heat(both)
    with pytest.raises(ValueError, match="No history of an arm 'c'"):
        history.accuracy(both, "c")
    assert set(history.examples(both, "b")["arm"]) == {"b"}
    with pytest.raises(ValueError, match=r"They have none\. Runs read from recorded data .* study\.keep"):
        history.accuracy(runs_of())
    with pytest.raises(ValueError, match="needs gold answers"):
        history.accuracy(runs_of(("a", 0, [(1, "x", 4, math.nan)])))


def test_the_package_offers_it() -> None:
    assert rlkit.history is history


# Kept by a study --------------------------------------------------------------------------------------------------


CLAIM = rlkit.Claim("one", "x is 1.", "x", ">", 0.0, "", "supported", over="sample")


def test_a_study_keeps_what_it_makes_of_histories(home: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLKIT_ROOT", str(tmp_path))
    made = pd.DataFrame({"id": ["train/1", "2"], "std": [1 / 3, np.nan]})
    study = Study("demo", preset="full")
    shown = study.keep("profile", lambda: made)
    pd.testing.assert_frame_equal(shown, made)
    study.keep("count", lambda: {"x": np.int64(2)})
    study._kept.fingerprint = {}
    study.judge([CLAIM], {"one": [1.0, 1.5]})
    monkeypatch.setenv("RLKIT_RECORDED", "1")

    def never() -> None:
        raise AssertionError("computed")

    again = Study("demo", preset="full")
    pd.testing.assert_frame_equal(again.keep("profile", never), shown)
    assert again.keep("count", never) == {"x": 2}
    assert again.code_key == study.code_key
    with pytest.raises(NotRecorded, match="profil"):
        again.keep("profil", never)
    with pytest.raises(ValueError, match="one word"):
        again.keep("a/b", never)

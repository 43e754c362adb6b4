from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

import rlkit
from rlkit.runs import RunError, Runs, arm, jobs, measure, pool, run, training
from rlkit.runs.keys import Run
from rlkit.runs.progress import Progress, clock, mode_of

ROOT = Path(rlkit.__file__).parent.parent
SMALL = {"prompts_per_step": 2, "num_generations": 4, "max_steps": 3, "train_size": 32, "eval_every": 2, "eval_size": 8}
SHORT = {**SMALL, "max_steps": 1, "eval_size": 2}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "home"))
    for name in ("RLKIT_FRESH", "RLKIT_WORKERS", "RLKIT_RECORDED", "RLKIT_OUTPUT", "RLKIT_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def small(arms: Any, **options: Any) -> Any:
    fixed = {"preset": "smoke", "seeds": 1, "workers": 0, "progress": False, **SHORT}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nothing was learnable")
        return run(arms, **{**fixed, **options})


def metrics_files(home: Path) -> Any:
    return {path.parent.name: path.read_bytes() for path in home.glob("*/metrics.csv")}


@pytest.fixture(scope="module")
def two_arms(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two arms, two seeds, trained once for all tests that only look."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLKIT_HOME", str(tmp_path_factory.mktemp("two")))
        return small(["dr_grpo", arm("mc_grpo", "median", role="method")], seeds=2, reward="digits", **SMALL)


def test_the_table_is_tidy_and_complete(two_arms: Runs) -> None:
    frame = two_arms.frame
    assert list(frame.columns) == ["arm", "seed", "step", "metric", "value", "source"]
    assert set(frame["arm"]) == {"dr_grpo", "median"}
    assert set(frame["source"]) == {"run"}
    needed = {
        "accuracy",
        "rollout_accuracy",
        "reward",
        "grad_norm",
        "generated_tokens",
        "trained_tokens",
        "rows_left_out",
    }
    assert needed <= set(frame["metric"])
    assert not frame.duplicated(["arm", "seed", "step", "metric"]).any()
    assert two_arms.totals["optimizer_steps"].tolist() == [3] * 4


def test_accuracy_is_measured_at_the_start_every_few_steps_and_at_the_end(two_arms: Runs) -> None:
    part = two_arms.frame.query("metric == 'accuracy' and arm == 'median' and seed == 0")
    assert part["step"].tolist() == [0, 2, 3]
    assert ((part["value"] * 8) % 1 == 0).all()  # of 8 prompts


def test_costs_start_at_zero_and_grow(two_arms: Runs) -> None:
    for _, part in two_arms.frame.query("metric == 'generated_tokens'").groupby(["arm", "seed"]):
        assert part["step"].tolist() == [0, 1, 2, 3]
        assert part["value"].iloc[0] == 0
        assert (part["value"].diff().iloc[1:] > 0).all()


def test_seconds_are_kept_out_of_the_metrics(two_arms: Runs) -> None:
    assert not [name for name in two_arms.frame["metric"].unique() if "time" in name or "second" in name]
    assert {"step_time", "train_runtime", "eval_seconds"} <= set(two_arms.timing["metric"])
    assert two_arms.milliseconds > 0


def test_values_by_run_and_paired_differences(two_arms: Runs) -> None:
    table = two_arms.value("accuracy")
    assert table.shape == (2, 2)
    assert list(table.index) == ["dr_grpo", "median"]
    found = two_arms.difference("accuracy", "median", "dr_grpo", at=0)
    assert found.tolist() == [0.0, 0.0]  # both arms start from the same base
    area = two_arms.value("accuracy", at="auc", x="generated_tokens")
    rows = two_arms.frame.query("arm == 'median' and seed == 1")
    x = rows.query("metric == 'generated_tokens'").set_index("step")["value"].loc[[0, 2, 3]]
    y = rows.query("metric == 'accuracy'").set_index("step")["value"]
    assert area.loc["median", 1] == pytest.approx(np.trapezoid(y, x) / x.iloc[-1])


def curves(arm_name: str, tokens: list[float], heights: list[float], source: str = "run") -> pd.DataFrame:
    fixed = {"arm": arm_name, "seed": 0, "step": [0, 1, 2], "source": source}
    parts = [("generated_tokens", tokens), ("accuracy", heights)]
    return pd.concat([pd.DataFrame({**fixed, "metric": name, "value": value}) for name, value in parts])


def test_areas_over_a_cost_are_compared_at_equal_cost() -> None:
    frame = pd.concat(
        [curves("a", [0.0, 10.0, 20.0], [0.0, 1.0, 1.0]), curves("b", [0.0, 20.0, 40.0], [0.0, 1.0, 1.0])]
    )
    runs = Runs([arm("grpo", "a"), arm("grpo", "b")], frame, pd.DataFrame())
    # up to 20 tokens: a has (5 + 10) / 20, b has 10 / 20
    assert runs.difference("accuracy", "a", "b", at="auc", x="generated_tokens").tolist() == [pytest.approx(0.25)]
    assert runs.difference("accuracy", "a", "b", at="auc").tolist() == [0.0]


def test_a_recorded_arm_is_no_pair_of_one_trained_now() -> None:
    heights = [0.0, 1.0, 1.0]
    frame = pd.concat([curves("a", heights, heights), curves("b", heights, heights, "recorded")])
    runs = Runs([arm("grpo", "a"), arm("grpo", "b")], frame, pd.DataFrame())
    assert not runs.comparable("a", "b")
    with pytest.raises(ValueError, match="no pair"):
        runs.difference("accuracy", "a", "b")


def test_a_misspelt_metric_or_arm_lists_near_ones(two_arms: Runs) -> None:
    with pytest.raises(ValueError, match="'accuracy'"):
        two_arms.value("acuracy")
    with pytest.raises(ValueError, match="'median'"):
        two_arms.difference("accuracy", "medain", "dr_grpo")
    with pytest.raises(ValueError, match=r"\[0, 2, 3\]"):
        two_arms.value("accuracy", at=1)


def test_the_verdict_is_against_the_baseline_and_preliminary_with_few_seeds(two_arms: Runs) -> None:
    table = two_arms.verdict("accuracy")
    assert two_arms.baseline == "dr_grpo"
    assert table.loc["median", "verdict"].startswith("preliminary")
    assert table.loc["median", "seeds"] == 2
    assert "2 arms, 2 seeds" in repr(two_arms)
    assert "<table" in two_arms._repr_html_()


def test_runs_draw_themselves(two_arms: Runs) -> None:
    assert two_arms.plot("accuracy", x="generated_tokens") is not None


# The cache --------------------------------------------------------------------------------------------------------


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("trained although it was cached")

    monkeypatch.setattr(training, "train", never)


def test_a_finished_run_is_never_trained_twice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small(["dr_grpo"])
    forbid(monkeypatch)
    again = small(["dr_grpo"])
    pd.testing.assert_frame_equal(first.frame, again.frame)
    renamed = small([arm("dr_grpo", "another name")])
    assert set(renamed.frame["arm"]) == {"another name"}
    with pytest.raises(RunError, match="trained although"):
        small(["dr_grpo"], fresh=True)


def test_equal_arms_are_trained_once(home: Path) -> None:
    runs = small([arm("dr_grpo", "a"), arm("dr_grpo", "b", learning_rate=3e-5)])
    assert len(metrics_files(home)) == 1
    assert runs.difference("reward", "a", "b").tolist() == [0.0]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_rollouts(home: Path) -> None:
    small(["dr_grpo"], seeds=[0, 1])
    first = metrics_files(home)
    small(["dr_grpo"], seeds=[0, 1], fresh=True)
    assert metrics_files(home) == first
    assert len(set(first.values())) == 2


@pytest.mark.parametrize("name", ["metrics.csv", "run.json"])
def test_a_damaged_run_is_trained_again_to_the_same_metrics(home: Path, name: str) -> None:
    small(["dr_grpo"])
    (before,) = metrics_files(home).values()
    (path,) = home.glob(f"*/{name}")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(UserWarning, match="damaged"):
        small(["dr_grpo"])
    assert list(metrics_files(home).values()) == [before]


def test_what_cannot_be_hashed_runs_uncached_and_says_so(home: Path) -> None:
    tables = {}
    exec(
        "def graded(completions, **columns):\n    return [float(hash(lock) * 0 + len(c)) for c in completions]", tables
    )
    import threading

    tables["lock"] = threading.Lock()
    with pytest.warns(UserWarning, match=r"not cached: .*global lock is a lock"):
        runs = small(["dr_grpo"], reward=tables["graded"])
    assert runs.keys == {("dr_grpo", 0): None}
    assert metrics_files(home) == {}


def test_a_file_edited_under_a_running_process_is_not_cached(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "changed_since_start", lambda files: ["mc_grpo.py"])
    with pytest.warns(UserWarning, match=r"mc_grpo\.py changed after Python had started"):
        small(["mc_grpo"])
    assert metrics_files(home) == {}


# Evaluation and notes ---------------------------------------------------------------------------------------------


def trained(tmp_path: Path, **changes: Any) -> Any:
    overrides = {**SMALL, "reward": None, **changes}
    reward = overrides.pop("reward")
    return training.train(Run("dr_grpo", "smoke", 0, reward=reward, overrides=overrides), tmp_path)


def test_evaluation_does_not_disturb_training(tmp_path: Path) -> None:
    def without(result: Any) -> Any:
        return [row for row in result.metrics if row[1] != "accuracy"]

    with_it, often = trained(tmp_path), trained(tmp_path, eval_every=1)
    none = trained(tmp_path, eval_size=0)
    assert without(with_it) == without(often) == without(none)
    assert [row for row in none.metrics if row[1] == "accuracy"] == []
    assert len([row for row in often.metrics if row[1] == "accuracy"]) == 4


def test_a_validation_split_is_evaluated_beside_and_changes_nothing_else(tmp_path: Path) -> None:
    def without(result: Any) -> Any:
        return [row for row in result.metrics if row[1] != "validation_accuracy"]

    plain, both = trained(tmp_path), trained(tmp_path, validation_size=8)
    alone = trained(tmp_path, validation_size=8, eval_size=0)
    assert without(both) == plain.metrics
    steps = [
        [(step, value) for step, name, value in run.metrics if name == "validation_accuracy"] for run in (both, alone)
    ]
    assert steps[0] == steps[1] and [step for step, _ in steps[0]] == [0, 2, 3]
    assert not any(name == "accuracy" for _, name, _ in alone.metrics)


def test_rollout_accuracy_counts_right_rollouts_whatever_the_reward(tmp_path: Path) -> None:
    seen = []

    def spy(completions: list[str], gold: Any, **columns: Any) -> Any:
        right = [completion.endswith(f"#{answer}") for completion, answer in zip(completions, gold, strict=True)]
        seen.append(sum(right) / len(right))
        return [0.0, 1.0] * (len(completions) // 2)

    result = trained(tmp_path, reward=spy, max_steps=2)
    logged = [value for _, name, value in result.metrics if name == "rollout_accuracy"]
    assert logged == pytest.approx(seen)


def test_a_run_without_anything_to_learn_says_so() -> None:
    with pytest.warns(UserWarning, match=r"'dr_grpo', seed 0: nothing was learnable: .* 3 logged steps.* 100%"):
        run(["dr_grpo"], preset="smoke", workers=0, progress=False, reward=constant, **SMALL)


def constant(completions: list[str], **columns: Any) -> Any:
    return [1.0] * len(completions)


def test_arms_of_one_seed_see_the_same_prompts_in_the_same_order(tmp_path: Path) -> None:
    def prompts_of(method: Any, seed: int) -> Any:
        seen = []

        def spy(prompts: Any, completions: list[str], **columns: Any) -> Any:
            seen.extend(dict.fromkeys(prompts))
            return [float(len(c)) for c in completions]

        training.train(Run(method, "smoke", seed, reward=spy, overrides=SMALL), tmp_path)
        return seen

    first = prompts_of("dr_grpo", 0)
    assert len(first) == 6
    assert first == prompts_of("mc_grpo", 0)  # a group of another size
    assert first != prompts_of("dr_grpo", 1)


def test_stopping_early_gives_the_same_first_steps(tmp_path: Path) -> None:
    full = trained(tmp_path)
    short = training.train(Run("dr_grpo", "smoke", 0, overrides=SMALL), tmp_path, stop_after=1)
    first = {row for row in short.metrics if row[0] <= 1 and row[1] not in ("accuracy", "train_loss")}
    assert first <= set(full.metrics)
    assert max(row[0] for row in short.metrics) == 1


def test_threads_are_put_back(tmp_path: Path) -> None:
    import torch

    before = torch.get_num_threads()
    trained(tmp_path)
    assert torch.get_num_threads() == before


# Errors -----------------------------------------------------------------------------------------------------------


def broken(completions: list[str], **columns: Any) -> None:
    raise ZeroDivisionError("no such grade")


def test_an_error_names_arm_seed_and_cause_and_keeps_the_others(home: Path) -> None:
    arms = [arm("dr_grpo", "good"), arm("dr_grpo", "bad one", reward=broken)]
    with pytest.raises(
        RunError, match=r"1 of 2 runs failed. The other 1 are kept.\n'bad one', seed 0: .*no such grade"
    ):
        small(arms)
    assert len(metrics_files(home)) == 1
    assert not list((home / "tmp").iterdir())


@pytest.mark.parametrize(
    ("arms", "options", "message"),
    [
        (["mcgrpo"], {}, "mc_grpo"),
        ([], {}, "No arm"),
        (["dr_grpo", "dr_grpo"], {}, "Two arms are named 'dr_grpo'"),
        (["dr_grpo"], {"preset": "tinny"}, "'tiny'"),
        (["dr_grpo"], {"seeds": []}, "seeds is a number"),
        (["dr_grpo"], {"seeds": [1, 1]}, "different ones"),
        (["dr_grpo"], {"workers": -1}, "workers is -1"),
        (["dr_grpo"], {"task": "chian"}, "'chain'"),
    ],
)
def test_bad_input_is_refused_with_a_hint(arms: Any, options: Any, message: str) -> None:
    with pytest.raises((ValueError, KeyError), match=message):
        small(arms, **options)


def test_a_misspelt_setting_lists_near_ones() -> None:
    with pytest.raises(
        RunError, match=r"'dr_grpo', seed 0: ValueError: Unknown setting 'lerning_rate'.*'learning_rate'"
    ):
        small(["dr_grpo"], lerning_rate=1e-4)


def test_arms_are_checked() -> None:
    assert arm("mc_grpo", scale="mad").label == "mc_grpo scale=mad"
    for bad in ({"tier": "fast"}, {"role": "star"}, {"label": "a,b"}):
        with pytest.raises(ValueError, match="Arm"):
            arm("mc_grpo", **{"label": "x", **bad})


def test_only_the_tiers_of_the_preset_run(home: Path) -> None:
    runs = small(["dr_grpo", arm("grpo", "extra", tier="full")])
    assert runs.labels == ["dr_grpo"]
    with pytest.raises(ValueError, match="tier core"):
        small([arm("grpo", "extra", tier="full")])


# Measurements -----------------------------------------------------------------------------------------------------

calls = []


def drawn(n: int, seed: int = 0) -> Any:
    calls.append(seed)
    return pd.DataFrame({"x": np.random.default_rng(seed).normal(size=n), "name": ["a", "b"] * (n // 2)})


def test_a_measurement_is_made_once_and_comes_back_the_same() -> None:
    calls.clear()
    first, again = measure(drawn, n=4), measure(drawn, n=4)
    pd.testing.assert_frame_equal(first, again)
    pd.testing.assert_frame_equal(first, drawn(4))
    assert len(calls) == 2  # once by measure, once here
    assert len(measure(drawn, n=6)) == 6


def test_a_measurement_over_seeds_is_joined() -> None:
    table = measure(drawn, seeds=3, n=2, workers=0)
    assert table["seed"].tolist() == [0, 0, 1, 1, 2, 2]
    assert table["x"].nunique() == 6


def arrays() -> Any:
    return {"a": np.arange(3), "b": np.array([[0.1]])}


def nested() -> Any:
    return {"share": np.float64(0.1), "list": [1, (2, 3)], "none": None}


def seeded() -> Any:
    import random

    import torch

    return [random.random(), float(np.random.random()), float(torch.rand(1))]


def test_arrays_and_numbers_can_be_measured() -> None:
    for _ in range(2):
        found = measure(arrays)
        assert found["a"].tolist() == [0, 1, 2]
        assert found["b"].dtype == float
        assert measure(nested) == {"share": 0.1, "list": [1, [2, 3]], "none": None}


def test_random_numbers_are_seeded_and_the_callers_state_is_kept() -> None:
    import random

    random.seed(5)
    first = measure(seeded, fresh=True)
    after = random.random()
    random.seed(5)
    assert after == random.random()
    assert measure(seeded, fresh=True) == first


@pytest.mark.parametrize(
    "value", [object(), {"a": np.array([object()])}, pd.DataFrame({"x": [1]}, index=["r"]), {1, 2}]
)
def test_what_cannot_be_kept_is_refused(value: Any) -> None:
    with pytest.raises(RunError, match=r"measure function returns|plain index|Python objects"):
        measure(lambda: value, fresh=True)


# Workers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def workers() -> Iterator[Any]:
    yield
    pool.stop()


@pytest.mark.slow
def test_workers_give_the_same_bytes_as_this_process_and_are_reused(home: Path, workers: None) -> None:
    scale = 2.0
    mine = rlkit.Method("mine", advantage=lambda ctx: (ctx.rewards - ctx.rewards.mean(1, keepdim=True)) * scale)
    inside = small(["mc_grpo", mine], **SMALL)
    first = metrics_files(home)
    started = time.monotonic()
    outside = small(["mc_grpo", mine], workers=2, fresh=True, **SMALL)
    cold = time.monotonic() - started
    assert metrics_files(home) == first  # cached under the same keys, so the keys agree as well
    pd.testing.assert_frame_equal(inside.frame, outside.frame)
    started = time.monotonic()
    small(["mc_grpo", mine], workers=2, fresh=True, **SMALL)
    assert time.monotonic() - started < cold


def deadly(path: Path) -> Any:
    path = Path(path)
    if not path.exists():
        path.write_text("", encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_worker_is_replaced_and_its_job_done_again(tmp_path: Path, workers: None) -> None:
    assert measure(deadly, workers=1, path=str(tmp_path / "once")) == 7


GRID = {"preset": "smoke", "seeds": 2, "prompts_per_step": 2, "num_generations": 4, "max_steps": 15}
GRID |= {"train_size": 64, "eval_every": 9, "eval_size": 8}
SCRIPT = f"""
import rlkit
rlkit.run(["dr_grpo", "grpo"], workers=2, progress="lines", **{GRID!r})
print("finished", flush=True)
"""


def start(home: Path, script: str = SCRIPT, **options: Any) -> Any:
    env = {**os.environ, "RLKIT_HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", script], env=env, text=True, **options)


def wait_until(condition: Any, seconds: Any = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_kill_9_half_way_and_start_again_gives_the_metrics_of_an_uninterrupted_grid(tmp_path: Path, home: Path) -> None:
    run(["dr_grpo", "grpo"], workers=0, progress=False, **GRID)
    whole, broken_off = home, tmp_path / "broken"
    process = start(broken_off, stderr=subprocess.DEVNULL)
    wait_until(lambda: metrics_files(broken_off))
    workers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert psutil.wait_procs(workers, timeout=10)[1] == []  # they end with their parent
    kept = metrics_files(broken_off)
    assert 1 <= len(kept) < 4
    assert start(broken_off).wait(300) == 0
    assert metrics_files(broken_off) == metrics_files(whole)
    assert set(kept.items()) <= set(metrics_files(whole).items())
    assert not list((broken_off / "tmp").iterdir())


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_stops_promptly_and_keeps_what_is_finished(tmp_path: Path) -> None:
    many = SCRIPT.replace("'seeds': 2", "'seeds': 10")  # enough to be in the middle when the first is seen
    assert many != SCRIPT

    def hear() -> None:  # a shell's background jobs inherit a SIGINT that is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = start(tmp_path, many, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=hear)
    wait_until(lambda: metrics_files(tmp_path))
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: parent and workers get it
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - started < 5
    assert "KeyboardInterrupt" in errors
    assert 1 <= len(metrics_files(tmp_path)) < 20


@pytest.mark.slow
def test_two_processes_share_the_store(tmp_path: Path) -> None:
    both = [start(tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(timeout=300)[0] for process in both] == ["finished\n"] * 2
    assert len(metrics_files(tmp_path)) == 4


def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.worker_count(8, 3) == 3
    assert 1 <= pool.worker_count(None, 100) <= (os.cpu_count() or 1)
    monkeypatch.setenv("RLKIT_WORKERS", "2")
    assert pool.worker_count(None, 100) == 2
    monkeypatch.setenv("RLKIT_WORKERS", "many")
    with pytest.raises(ValueError, match="RLKIT_WORKERS"):
        pool.worker_count(None, 100)


# Progress ---------------------------------------------------------------------------------------------------------


def test_without_a_terminal_progress_is_a_bounded_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlkit.runs.progress.PAUSE", 0.0)
    out = io.StringIO()
    with Progress(3000, 30, "runs", "lines", out) as bar:
        for step in range(3000):
            bar.update(step, step // 100)
    lines = out.getvalue().splitlines()
    assert lines[0] == "runs: 30 runs to do"
    assert len(lines) <= 22
    assert "left" in lines[5]
    assert "\r" not in out.getvalue()


def test_nothing_to_do_says_nothing() -> None:
    out = io.StringIO()
    with Progress(0, 0, "runs", True, out):
        pass
    assert out.getvalue() == ""


def test_progress_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mode_of(False, io.StringIO()) == "off"
    assert mode_of(True, io.StringIO()) in {"lines", "bar"}
    monkeypatch.setenv("RLKIT_PROGRESS", "off")
    assert mode_of(True, io.StringIO()) == "off"
    monkeypatch.setenv("RLKIT_PROGRESS", "loud")
    with pytest.raises(ValueError, match="'loud'"):
        mode_of(True, io.StringIO())


def test_times_as_people_say_them() -> None:
    assert [clock(s) for s in (0.4, 59, 61, 3600)] == ["0 s", "59 s", "1 min 1 s", "60 min 0 s"]

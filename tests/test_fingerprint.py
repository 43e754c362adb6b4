from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import rlkit
from rlkit import paths
from rlkit.fingerprint import STEPS, check_fingerprint, differences, fingerprint
from rlkit.recorded import Recorded
from rlkit.runs.keys import this_machine

SMALL = {"prompts_per_step": 2, "num_generations": 4, "max_steps": 5, "train_size": 32, "eval_size": 4, "eval_every": 2}
ARMS = [rlkit.arm("dr_grpo", "mean", reward="digits", **SMALL), rlkit.arm("grpo", "more", tier="full", **SMALL)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A notebook with one core arm, recorded here."""
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLKIT_ROOT", str(root))
        patch.setenv("RLKIT_HOME", str(root / "home"))
        runs = rlkit.run(ARMS[:1], preset="full", seeds=1, workers=0, progress=False)
        data = Recorded("demo", fingerprint=fingerprint(runs.frame, ARMS, runs.machine))
        data.write(paths.recorded("demo", write=True))
        yield data


def with_changes(recorded: Recorded, change: Any) -> None:
    found = copy.deepcopy(recorded.fingerprint)
    change(found)
    data = Recorded("demo", fingerprint=found)
    data.write(paths.recorded("demo", write=True))


def test_it_holds_the_first_steps_of_the_core_arms_with_all_digits(recorded: Recorded) -> None:
    assert list(recorded.fingerprint["arms"]) == ["mean"]
    metrics = recorded.fingerprint["arms"]["mean"]
    assert [step for step, _ in metrics["reward"]] == [1, 2, 3]
    assert [step for step, _ in metrics["accuracy"]] == [0, 2]
    assert {"grad_norm", "loss", "generated_tokens"} <= set(metrics)
    assert recorded.fingerprint["machine"] == this_machine()
    assert any(len(repr(value)) > 12 for _, value in metrics["grad_norm"])


def test_todays_code_gives_the_recorded_numbers(recorded: Recorded) -> None:
    with_changes(recorded, lambda found: None)
    assert check_fingerprint("demo", ARMS) == []


def test_one_last_bit_is_noticed_and_names_the_notebook_to_record(recorded: Recorded) -> None:
    def change(found: Any) -> None:
        found["arms"]["mean"]["reward"][2][1] += 1e-12

    with_changes(recorded, change)
    found = check_fingerprint("demo", ARMS)
    assert len(found) == 2
    assert "arm 'mean': reward at step 3" in found[0]
    assert "rlkit figures demo --preset full" in found[1]


def test_on_another_class_of_machine_only_the_first_step_counts_to_1e_3(recorded: Recorded) -> None:
    def elsewhere(found: Any) -> None:
        found["machine"]["vendor"] = "another"
        found["arms"]["mean"]["reward"][2][1] += 0.5
        found["arms"]["mean"]["reward"][0][1] *= 1 + 5e-4

    with_changes(recorded, elsewhere)
    assert check_fingerprint("demo", ARMS) == []

    def too_far(found: Any) -> None:
        elsewhere(found)
        found["arms"]["mean"]["reward"][0][1] += 0.01

    with_changes(recorded, too_far)
    assert "reward at step 1" in check_fingerprint("demo", ARMS)[0]


def test_arms_that_came_or_went_are_noticed(recorded: Recorded) -> None:
    now = {"arms": {"new": {}}}
    found = differences(recorded.fingerprint, now, exact=True)
    assert found == ["arm 'mean' is gone", "arm 'new' was not recorded"]


def test_nan_is_left_out() -> None:
    frame = pd.DataFrame({"arm": "mean", "seed": 0, "step": [1, 2], "metric": "m", "value": [float("nan"), 2.0]})
    assert fingerprint(frame, ARMS, {})["arms"]["mean"] == {"m": [[2, 2.0]]}
    assert STEPS == 3

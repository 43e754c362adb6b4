"""The task with planted roles: roles and completions by hand, splits, rewards."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlkit.tasks.base import SPLITS, get_task, split_of
from rlkit.tasks.planted import (
    FILLERS,
    QUADRANTS,
    ROLES,
    Planted,
    Problem,
    checked,
    digits,
    digits_of,
    exact,
    get_planted,
    problem_of,
    roles,
)

RIGHT = "75w248x300y16"  # 47+85=132: the last digit first, then 2+3+1=6


def test_problem_matches_hand_computed_columns() -> None:
    problem = Problem(47, 85, 2)
    assert problem.text == "47+85="
    assert problem.columns == [(7, 5, 0), (4, 8, 1), (0, 0, 1)]
    assert problem.total == [2, 3, 1]
    assert problem.careless == [2, 2, 0]
    assert problem.completion(problem.total, 6, "wxy") == RIGHT
    assert problem.solution == "75w248w300w16"
    assert problem_of("47+85=") == problem


@pytest.mark.parametrize(
    ("prompt", "sums"),
    [
        ("47+85=", ["plain", "carry", "carry"]),
        ("41+85=", ["plain", "plain", "carry"]),
        ("47+15=", ["plain", "carry", "plain"]),
        ("05+05=", ["plain", "carry", "plain"]),
        ("99+01=", ["plain", "carry", "carry"]),  # a carry that only a carry made
        ("12+34=", ["plain", "plain", "plain"]),
    ],
)
def test_roles_by_hand(prompt: str, sums: list[str]) -> None:
    blocks = [role for last in sums for role in ("copy", "copy", "filler", last)]
    assert roles(prompt) == [*blocks, "checksum", "end"]
    assert roles(prompt, 5) == [*blocks, "checksum"][:5]
    assert roles(prompt, 16) == [*blocks, "checksum", "end", "end", "end"]
    assert roles([{"role": "user", "content": prompt}]) == roles(prompt)


def test_every_role_has_a_quadrant() -> None:
    assert set(QUADRANTS) == set(ROLES)
    assert set(QUADRANTS.values()) == {"Q1", "Q2", "Q3", "Q4"}


def test_the_careless_are_wrong_exactly_where_a_carry_comes_in() -> None:
    for problem in itertools.islice(get_planted("planted").problems("train"), 200):
        wrong = [a != b for a, b in zip(problem.total, problem.careless, strict=True)]
        assert wrong == [role == "carry" for role in roles(problem.text)[3:-2:4]]
        value = sum(digit * 10**place for place, digit in enumerate(problem.total))
        assert value == problem.first + problem.second


@pytest.mark.parametrize("prompt", ["47+8=", "47-85=", "47+85", "", "4٧+85="])
def test_other_prompts_are_errors(prompt: str) -> None:
    with pytest.raises(ValueError, match="is no prompt of this task"):
        roles(prompt)


@pytest.mark.parametrize(
    ("completion", "right_sum", "right_checksum", "share"),
    [
        (RIGHT, 1, 1, 1),
        ("75z248z300z16", 1, 1, 1),  # fillers mean nothing
        ("00w200w300w16", 1, 1, 1),  # what is copied is not graded
        ("75w248x300y17", 1, 0, 1),
        ("75w248x200y04", 0, 0, 1 / 3),  # every carry forgotten; the checksum fits what was written
        ("75w248x300y0", 0, 0, 0),  # no checksum: not the form
        ("75w248x300y166", 0, 0, 0),
        ("75w248x300q16", 0, 0, 0),
        (RIGHT + "\n", 0, 0, 0),
        ("132", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_rewards_by_hand(completion: str, right_sum: float, right_checksum: float, share: float) -> None:
    assert exact([completion], ["132"]) == get_task("planted").correct([completion], ["132"]) == [right_sum]
    assert checked([completion], ["132"]) == [right_checksum]
    assert get_task("planted(whole=True)").correct([completion], ["132"]) == [right_checksum]
    assert digits([completion], ["132"]) == [pytest.approx(share)]
    assert exact([[{"role": "assistant", "content": completion}]], ["132"]) == [right_sum]


def test_digits_of_reads_sum_and_checksum() -> None:
    assert digits_of(RIGHT, 2) == [2, 3, 1, 6]
    assert digits_of(RIGHT, 3) is None


@pytest.mark.parametrize("reward", ["exact", "checked", "digits"])
def test_every_gold_grades_itself(reward: str) -> None:
    task = get_task("planted")
    rows = task.dataset("train", 64)
    best = [problem_of(prompt).solution for prompt in rows["prompt"]]
    assert task.rewards[reward](completions=best, gold=rows["gold"]) == [1.0] * 64
    assert task.correct([task.solution(gold) for gold in rows["gold"]], rows["gold"]) == [1.0] * 64


@settings(deadline=None)
@given(st.text(max_size=40) | st.from_regex(rf"[0-9{FILLERS}]{{0,16}}", fullmatch=True))
def test_rewards_stay_in_range_whatever_the_model_writes(completion: str) -> None:
    for fn in (exact, checked, digits):
        assert 0.0 <= fn([completion], gold=["132"])[0] <= 1.0


def test_splits_are_disjoint_and_whole() -> None:
    task = Planted()
    found = {}
    for split in SPLITS:
        size = sum(split_of(f"{a:02d}+{b:02d}=") == split for a in range(100) for b in range(100))
        drawn = [problem.text for problem in itertools.islice(task.problems(split, seed=3), size)]
        assert len(set(drawn)) == size
        assert {split_of(text) for text in drawn} == {split}
        found[split] = set(drawn)
    assert len(set().union(*found.values())) == sum(map(len, found.values())) == 10_000


def test_a_small_split_comes_whole_before_it_repeats() -> None:
    rows = Planted(digits=1).dataset("test", 25)
    assert len(set(rows["id"])) == 25
    assert len(set(rows["prompt"])) < 25


def test_dataset_is_deterministic_and_nested() -> None:
    task = get_task("planted")
    rows = task.dataset("train", 40, seed=3)
    assert rows.to_list() == task.dataset("train", 40, seed=3).to_list()
    assert rows.to_list()[:10] == task.dataset("train", 10, seed=3).to_list()
    assert rows["prompt"] != task.dataset("train", 40, seed=4)["prompt"]
    assert {"prompt", "gold", "id"} == set(rows.column_names)


def test_first_problem_is_the_same_everywhere() -> None:
    """Pins the draw: another problem here means that every recorded run was trained on other data."""
    assert Planted().dataset("train", 1).to_list() == [{"prompt": "96+45=", "gold": "141", "id": "train/96+45="}]


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_a_completion_fills_the_room(digits: int) -> None:
    task = Planted(digits=digits)
    problem = next(task.problems("test"))
    assert len(problem.solution) + 1 == task.config["max_completion_length"] == len(roles(problem.text))


@pytest.mark.parametrize("options", [{"digits": 0}, {"digits": 4}])
def test_options_out_of_range_are_errors(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="planted: digits"):
        get_task("planted", **options)

"""The task of chained sums: problems, splits, and rewards with hand-computed values."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlkit.tasks.base import SPLITS, get_task, split_of
from rlkit.tasks.chain import Chain, Problem, answer_of, digits, exact, form, graded

STEPS = "14-1=13;13+15=28"
CAREFUL = f"{STEPS}#28"


def test_problem_matches_hand_computed_trace() -> None:
    problem = Problem((14, 1, 15), "-+")
    assert problem.text == "14-1+15"
    assert problem.totals == [13, 28]
    assert problem.steps == ["14-1=13", "13+15=28"]
    assert Problem((0, 3, 4), "--").steps == ["0-3=-3", "-3-4=-7"]


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        (CAREFUL, 1),
        ("#28", 1),
        ("#28\n", 1),
        ("#028", 1),  # the same integer
        ("#27", 0),
        ("28", 0),
        ("#28;", 0),
        ("#28.0", 0),
        ("#+28", 0),
        ("#2 8", 0),
        ("#28#27", 0),  # the last answer counts
        ("#7+21", 0),  # never evaluated
        ("#__import__('os')", 0),
        ("#" + "9" * 10_000, 0),
        ("#٢٨", 0),  # digits of another script are not ours
        ("", 0),
        ("14-1=13;13+", 0),
        ("14-1=13;13+15=28#", 0),
    ],
)
def test_exact_checks_the_final_integer(completion: str, right: float) -> None:
    assert exact([completion], ["28"]) == [right]
    assert get_task("chain").correct([completion], ["28"]) == [right]


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        (CAREFUL, 2.0),
        ("14-1=13;13+15=27#27", 0.25 + 0.375),  # format, first step
        ("14-1=12;12+15=27#27", 0.25),  # format only
        ("14-1=13#28", 1.0 + 0.375),  # answer and first step, one step short
        ("#28", 1.0),
        ("#27", 0.0),
        ("14-1=12;13+15=28#28", 1.25),  # the second step is right, but comes after a wrong one
        ("abc;def#28", 1.0),
        (STEPS, 0.0),  # unfinished
        ("", 0.0),
    ],
)
def test_graded_gives_hand_computed_levels(completion: str, value: float) -> None:
    assert graded([completion], ["28"], [STEPS]) == [value]


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        (CAREFUL, 1.0),
        ("14-1=13;13+15=27#27", 4 / 6),  # 13: 2, 27 for 28: 1, 27 for 28: 1
        ("#28", 2 / 6),
        ("#8", 1 / 6),
        ("#128", 2 / 7),  # the surplus digit counts against it
        ("14-1=3;3+15=18#18", 3 / 6),
        (STEPS, 0.0),
        ("", 0.0),
    ],
)
def test_digits_gives_hand_computed_shares(completion: str, value: float) -> None:
    assert digits([completion], ["28"], [STEPS]) == [pytest.approx(value)]


def test_form_looks_at_the_steps_and_not_at_what_they_say() -> None:
    texts = [CAREFUL, "14-1=99;1+1=0#5", "14-1=13#28", "#28", STEPS, "14-1=13;13+15=28#28#28", ""]
    assert form(texts, steps=[STEPS] * len(texts)) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_digits_counts_the_minus_sign() -> None:
    assert digits(["#7"], ["-7"], ["0-7=-7"]) == [1 / 4]
    assert digits(["0-7=-7#-7"], ["-7"], ["0-7=-7"]) == [1.0]


@pytest.mark.parametrize("reward", ["exact", "graded", "digits", "form"])
def test_rewards_accept_strings_and_chat_messages(reward: str) -> None:
    columns = {"gold": ["28", "28", "28"], "steps": [STEPS] * 3}
    fn = get_task("chain").rewards[reward]
    texts = [CAREFUL, "#27", ""]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    assert fn(prompts=["14-1+15?"] * 3, completions=texts, **columns) == fn(
        prompts=[[]] * 3, completions=chats, **columns
    )


@pytest.mark.parametrize("reward", ["exact", "graded", "digits", "form"])
def test_every_gold_grades_itself_best(reward: str) -> None:
    rows = get_task("chain").dataset("train", 64)
    fn = get_task("chain").rewards[reward]
    best = [f"{steps}#{gold}" for steps, gold in zip(rows["steps"], rows["gold"], strict=True)]
    values = fn(prompts=rows["prompt"], completions=best, gold=rows["gold"], steps=rows["steps"])
    assert values == [2.0 if reward == "graded" else 1.0] * 64


@settings(deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"[0-9+=;#-]{0,40}", fullmatch=True))
def test_rewards_stay_in_range_whatever_the_model_writes(completion: str) -> None:
    for fn, top in ((exact, 1.0), (graded, 2.0), (digits, 1.0)):
        value = fn([completion], gold=["28"], steps=[STEPS])[0]
        assert 0.0 <= value <= top
        if answer_of(completion) is None:
            assert value == 0.0


@settings(max_examples=25, deadline=None)
@given(terms=st.integers(2, 5), high=st.integers(3, 60), seed=st.integers(0, 3), size=st.integers(1, 80))
def test_splits_are_disjoint_and_free_of_duplicates(terms: int, high: int, seed: int, size: int) -> None:
    task = Chain(terms=max(terms, 3), high=high)
    texts = {}
    for split in SPLITS:
        drawn = [p.text for p in itertools.islice(task.problems(split, seed), min(size, task.space // 100 + 1))]
        assert len(set(drawn)) == len(drawn)
        assert {split_of(text) for text in drawn} == {split}
        texts[split] = set(drawn)
    assert (
        not texts["train"] & texts["validation"] | texts["train"] & texts["test"] | texts["validation"] & texts["test"]
    )


def test_a_small_split_comes_whole_before_it_repeats() -> None:
    task = Chain(terms=2, high=5)
    everything = {p.text for p in task._all() if split_of(p.text) == "train"}
    rows = task.dataset("train", len(everything) + 3)
    prompts = [prompt.rstrip("?") for prompt in rows["prompt"]]
    assert set(prompts[: len(everything)]) == everything
    assert len(set(rows["id"])) == len(rows)


def test_an_empty_split_is_an_error() -> None:
    with pytest.raises(ValueError, match="raise terms or high"):
        Chain(terms=2, high=1, operators="+").dataset("test", 1)


def test_dataset_is_deterministic_and_nested() -> None:
    task = get_task("chain")
    rows = task.dataset("train", 40, seed=3)
    assert rows.to_list() == task.dataset("train", 40, seed=3).to_list()
    assert rows.to_list()[:10] == task.dataset("train", 10, seed=3).to_list()
    assert rows["prompt"] != task.dataset("train", 40, seed=4)["prompt"]
    assert {"prompt", "gold", "id", "steps"} <= set(rows.column_names)
    assert all(row_id.startswith("train/") for row_id in rows["id"])


def test_first_problem_is_the_same_everywhere() -> None:
    """Pins the draw: another problem here means that every recorded run was trained on other data."""
    assert Chain(terms=4, high=20).dataset("train", 1)["prompt"][0] == "11+7-12-5?"


@settings(max_examples=30, deadline=None)
@given(
    terms=st.integers(2, 5),
    high=st.integers(1, 120),
    seed=st.integers(0, 99),
    operators=st.sampled_from(["+", "-", "+-"]),
)
def test_longest_bounds_every_careful_solution(terms: int, high: int, seed: int, operators: str) -> None:
    task = Chain(terms=terms, high=high, operators=operators)
    rng = random.Random(seed)
    for _ in range(50):
        problem = task.draw(rng)
        assert len(";".join(problem.steps) + f"#{problem.totals[-1]}") <= task.longest
        assert task.config["max_completion_length"] > task.longest


@pytest.mark.parametrize("options", [{"terms": 1}, {"terms": 21}, {"high": 0}, {"operators": "*"}])
def test_options_out_of_range_are_errors(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="chain: "):
        get_task("chain", **options)

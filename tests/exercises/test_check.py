from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
import torch

from rlkit.exercises import Case, Exercise, Outcome, check, checking, names
from rlkit.exercises.compare import difference

# What counts as equal ---------------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (torch.tensor([[1.0, NAN]]), torch.tensor([[1.0, NAN]], dtype=torch.float64)),
        (torch.tensor([1.0, 2.0]), [1, 2]),
        (torch.tensor([1.0, 2.0]), np.array([1, 2])),
        (torch.tensor([True, False]), [1.0, 0.0]),
        (torch.tensor(2.0), 2),
        (0.5, torch.tensor(0.5, requires_grad=True)),
        (1.0, 1.0 + 1e-6),
        (1e6, 1e6 + 1.0),
        ((torch.ones(2), 3), [[1, 1], 3.0]),
        ([1, [2, 3]], (1, (2, 3))),
        ({"a": 1, "b": [1, 2]}, {"b": (1, 2), "a": 1.0}),
        ("mean", "mean"),
        (None, None),
    ],
    ids=str,
)
def test_the_same_numbers_are_the_same_result(expected: Any, got: Any) -> None:
    assert difference(expected, got) == ""


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        (torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.5]]), "A[0, 1] is 2.5, expected 2; 1 of 2 entries differ"),
        (torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 2.0]]), "A has shape (1, 2), expected (2,)"),
        (torch.tensor([1.0]), torch.tensor([NAN]), "A[0] is nan, expected 1"),
        (
            torch.tensor([True, False]),
            torch.tensor([True, True]),
            "A[1] is True, expected False; 1 of 2 entries differ",
        ),
        (0.25, 0.5, "A is 0.5, expected 0.25"),
        (0.25, None, "A is None"),
        (0.25, "0.25", "A is a text, expected a number"),
        ((1, 2), 1, "there is one number instead of 2 results (first, second)"),
        ((1, 2), (1, 2, 3), "there are 3 results instead of 2 results (first, second)"),
        ((1, 2), (1, 3), "second is 3, expected 2"),
        ({"a": 1}, {"b": 1}, "A lacks the key 'a'"),
        ({"a": 1}, {"a": 2}, "A['a'] is 2, expected 1"),
        ("mean", "median", "A is 'median', expected 'mean'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_difference_is_told_with_its_place_and_both_numbers(expected: Any, got: Any, words: str) -> None:
    assert difference(expected, got, names=("first", "second"), what="A") == words


# Checks -----------------------------------------------------------------------------------------------------------


def centered(rewards: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
    return rewards - rewards.mean() + shift


def cases() -> list[Case]:
    return [
        Case((torch.tensor([1.0, 3.0]),), note="two rewards"),
        Case((torch.tensor([1.0, 2.0, 6.0]),), {"shift": 1.0}),
        Case((torch.zeros(0),), note="nothing at all"),
    ]


EXERCISE = Exercise(
    "Center.",
    centered,
    cases,
    hint="Subtract the mean.",
    mistakes={"This is the median.": lambda rewards, shift=0.0: rewards - rewards.median() + shift},
)


@pytest.fixture(autouse=True)
def exercises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLKIT_STRICT_CHECKS", raising=False)
    monkeypatch.setattr(checking, "_modules", lambda: ["demo"])
    monkeypatch.setattr(checking, "_exercises", lambda slug: {"centered": EXERCISE})


def tried(function: Any) -> Outcome:
    return check("demo.centered", function)


def test_a_right_function_passes_whatever_it_returns() -> None:
    outcome = tried(lambda r, shift=0.0: (r - r.mean() + shift).tolist())
    assert outcome.passed
    assert repr(outcome) == "✔ demo.centered: right in all 3 cases."


def test_the_first_failure_comes_with_input_expected_and_got() -> None:
    outcome = tried(lambda r, shift=0.0: r - r.mean())
    assert not outcome.passed
    assert outcome.text == "case 2 of 3: the result[0] is -2, expected -1; 3 of 3 entries differ."
    assert dict(outcome.details) == {
        "input": "rewards = [1, 2, 6], shift = 1",
        "expected": "[-1, 0, 4]",
        "got": "[-2, -1, 3]",
        "hint": "Subtract the mean.",
    }


def test_a_known_mistake_is_named() -> None:
    outcome = tried(lambda r, shift=0.0: r - r.median() + shift)
    assert outcome.details["hint"] == "This is the median."
    assert "(two rewards)" in outcome.text


def unfinished(rewards: Any, shift: float = 0.0) -> Any:
    raise NotImplementedError


def broken(rewards: Any, shift: float = 0.0) -> Any:
    return rewards / [][0]  # the place


def in_place(rewards: Any, shift: float = 0.0) -> Any:
    rewards -= rewards.mean()
    return rewards + shift


def test_what_does_not_give_a_result_is_told_from_what_gives_a_wrong_one() -> None:
    assert "the result is None" in tried(lambda r, shift=0.0: None).text
    assert "without `return`" in tried(lambda r, shift=0.0: None).details["hint"]
    assert "nothing is written here yet" in tried(unfinished).text
    found = tried(broken)
    assert "it raised IndexError: list index out of range" in found.text
    assert "# the place" in found.details["line"]
    assert "has to take (rewards)" in tried(lambda: 1).text
    assert "has to take (rewards, shift)" in tried(lambda r: r - r.mean()).text
    assert "leave out the brackets" in tried(3.0).text


def test_a_changed_input_is_noticed_and_the_next_student_gets_the_old_one() -> None:
    assert "changes its input 'rewards'" in tried(in_place).text
    assert tried(centered).passed


def test_random_numbers_are_the_same_for_both_and_the_callers_state_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(n: int) -> list[float]:
        return [float(torch.rand(())), float(np.random.rand()), random.random(), float(n)]

    def mine(n: int) -> list[float]:
        return noisy(n)

    monkeypatch.setattr(checking, "_exercises", lambda slug: {"noisy": Exercise("", noisy, [Case((1,)), Case((2,))])})
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert check("demo.noisy", mine).passed
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]


def test_programs_get_an_error_people_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLKIT_STRICT_CHECKS", "1")
    with pytest.raises(AssertionError, match=r"demo\.centered: case 2 of 3.*\n.*input"):
        tried(lambda r, shift=0.0: r - r.mean())
    assert tried(centered).passed


def test_an_unknown_exercise_lists_near_ones() -> None:
    for wrong in ("demo.centred", "demos.centered", "centered"):
        with pytest.raises(ValueError, match=re.escape(f"There is no exercise {wrong!r}") + ".*'demo.centered'"):
            check(wrong, centered)


def test_html_is_escaped_and_says_in_words_what_the_colour_says() -> None:
    page = tried(lambda r, shift=0.0: "<script>")._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "✘" in page
    assert "✔" in tried(centered)._repr_html_()


def test_an_exercise_without_cases_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_exercises", lambda slug: {"centered": Exercise("", centered, [])})
    with pytest.raises(ValueError, match="at least one case"):
        tried(centered)


def test_a_large_input_is_shown_by_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Exercise("", centered, [Case((torch.arange(100.0),))])
    monkeypatch.setattr(checking, "_exercises", lambda slug: {"centered": large})
    assert tried(lambda r: r).details["input"] == "rewards = a tensor of shape (100,)"


def test_all_exercises_are_listed() -> None:
    assert names() == ["demo.centered"]

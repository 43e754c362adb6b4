"""rlkit.steps.text: a step and a comparison in a terminal."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlkit.steps.text import columns, comparison_text, step_text
from tests.steps.made_up import NASTY, comparison, many, row, step

VALUES = {"coefficient": [0.5, 1.0, 0.01], "entropy": [0.0, 1.0, 2.0]}
SMALL = step(
    [
        row(["4", " is", "</s>"], VALUES, extras={"gold": "4"}),
        row(["5", "\n", "</s>"], {**VALUES, "coefficient": [-1.0, -0.5, 0.0]}, advantage=-1.0, reward=0.0, age=2),
        row(["6"], {"entropy": [1.0]}, advantage=0.0, counted=False, trained=False, grad_norm=None),
    ],
    notes=["A note."],
)


def test_a_step_in_words() -> None:
    lines = step_text(SMALL, width=100).splitlines()
    assert lines == [
        "One training step of grpo in slow motion: after 7 updates (seed 3)",
        "3 rollouts of one prompt: 2 trained, 1 taken out by the method, 1 replayed from earlier steps.",
        "coefficient: the push of the update on each token. Bar over a token: the update makes this token",
        "more likely; bar under it: less likely. Scale: longest up +1, longest down -1.",
        "",
        "Prompt 0: 1+1?  |  right answer 4  |  mean reward 0.667",
        "0  reward 1  advantage +0.5  gradient 0.25  age fresh        ✓ trained",
        "    ▅██ ▁▁▁",
        "    4␣is</s>",
        "1  reward 0  advantage -1    gradient 0.25  age 2 steps old  ✓ trained",
        "    5↵</s>",
        "    █▀",
        "2  reward 1  advantage 0     gradient -     age fresh        ✂ taken out",
        "    6",
        "",
        "The whole step: loss -0.25, gradient norm 2.",
        "Note: A note.",
        'Other bars: step.show("..."), with entropy.',
    ]


def test_another_quantity_on_demand() -> None:
    text = step_text(SMALL, "entropy")
    assert "entropy: how unsure the model was" in text and "     ▅▅ ███\n    4␣is</s>" in text
    assert repr(dataclasses.replace(SMALL, shown="entropy")) == text
    with pytest.raises(ValueError, match=r"no 'ratio'.*coefficient, entropy"):
        step_text(SMALL, "ratio")


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize(
    "token", ["7", " token", "日本語", "e\u0301", "\x1b[31m"], ids=["one", "word", "wide", "mark", "esc"]
)
def test_lines_keep_to_the_width(width: int, token: str) -> None:
    seen = many(2, 3, 60, token)
    rows = [dataclasses.replace(r, prompt=f"{token} " * 100, extras={"gold": token}) for r in seen.rows]
    text = step_text(dataclasses.replace(seen, rows=rows, notes=[token * 9 + " note" * 40]), width=width)
    assert max(columns(line) for line in text.splitlines()) <= width


def test_columns_count_wide_letters_twice_and_marks_not_at_all() -> None:
    assert [columns(text) for text in ("abc", "日本", "e\u0301", "")] == [3, 4, 1, 0]


def test_bars_stand_over_their_tokens() -> None:
    seen = step([row(["ab", "日本", "c", "d"], {"entropy": [1.0, 1.0, 0.0, 1.0]})])
    assert "    █ ███  █\n    ab日本cd" in step_text(seen)


def test_what_is_not_shown_is_counted() -> None:
    text = step_text(many(9, 20, 500))
    assert "10 more rollouts of this prompt not shown." in text
    assert re.search(r"(\d+) more groups? \(\d+ rollouts\) not shown: step\.only", text)
    assert "    … 308 more tokens" in text  # two lines of 96
    assert "… 4 more tokens" in step_text(step([row(["token"] * 42)]))  # two lines of 19
    assert len(text.splitlines()) < 220


def test_nothing_in_a_completion_reaches_the_terminal() -> None:
    rows = [row([NASTY, "\x9b2J"], {"entropy": [1.0, 2.0]}, prompt=NASTY, extras={"gold": NASTY})]
    text = step_text(step(rows, method=NASTY, notes=[NASTY])) + comparison_text(comparison(NASTY))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert r"\x1b[31m" in text and r"\x9b2J" in text
    text.encode()


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(), max_size=60), st.lists(st.text(st.characters(), max_size=30), max_size=5))
def test_any_text_is_printable(prompt: str, tokens: list[str]) -> None:
    values = {"entropy": [float(t) for t in range(len(tokens))]}
    text = step_text(step([row(tokens, values, prompt=prompt)], notes=tokens))
    assert all(line.isprintable() or "\N{NO-BREAK SPACE}" in line for line in text.split("\n"))
    text.encode()


@pytest.mark.parametrize("rows", [[], [row([])], [row(["1"])]], ids=["no rows", "no tokens", "no values"])
def test_empty_steps(rows: list) -> None:
    assert step_text(step(rows, metrics={}, options={})).startswith("One training step of grpo")


def test_a_comparison_in_words() -> None:
    assert comparison_text(comparison()).splitlines() == [
        "grpo, other on the same 4 rollouts of one prompt",
        "- grpo trains 3 of 4 rollouts (9 tokens).",
        "- other trains 1 of 4 rollouts (3 tokens).",
        "- One method makes a rollout more likely where another makes it less likely: 1 of 4.",
        "- other uses the first 3 of each 4 rollouts.",
        "",
        "Advantages side by side. In brackets: not trained. Empty: the method does not use the rollout.",
        "prompt  rollout  completion  reward  grpo   other",
        "------  -------  ----------  ------  -----  -------  ------------",
        "0       0        2#2         1       +1.5   -0.5     signs differ",
        "0       1        2#2         0       (0)    (0)",
        "0       2        2#2         0       -0.75  (+0.25)",
        "0       3        2#2         1       +1.5",
        "",
        "Cosine between the gradients: 1 is the same direction, 0 unrelated, -1 the opposite.",
        "       grpo    other",
        "-----  ------  ------",
        "grpo   1       -0.125",
        "other  -0.125  1",
    ]

"""What a model wrote is data: bounded time, escaped output, and never a right answer by accident."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings

import rlkit
from rlkit import plots
from rlkit.steps.step import Step
from rlkit.steps.text import step_text
from rlkit.steps.view import step_html
from tests.hostile.corpus import CORPUS, texts
from tests.steps.made_up import row, step

UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but the end of a line, bidi controls, halves of surrogate pairs."""
GOLD = r"\sqrt{2}+31"
each = pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in CORPUS.items()])


class Elements(HTMLParser):
    """Every element with its attributes' names."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.found |= {(tag, name) for name, _ in attrs} | {(tag, "")}


def shown(text: str) -> Step:
    """A step that has a text in every place where text can be."""
    rows = [row([text, "7"], {"entropy": [1.0, 2.0]}, prompt=text, extras={"gold": text, text[:50]: text})]
    return step(rows, method=text[:50], notes=[text], options={text[:50]: text}, metrics={text[:50]: 1.0})


OWN = Elements(step_html(shown("plain"), title="plain")).found
"""What the view writes itself."""


@each
def test_a_page_shows_it_and_nothing_else(text: str) -> None:
    started = time.process_time()
    html = step_html(shown(text), title=text)
    assert Elements(html).found <= OWN
    assert not UNSEEN.search(html) and len(html.encode()) < 60_000
    assert time.process_time() - started < 5


@each
def test_a_terminal_shows_it_and_obeys_nothing(text: str) -> None:
    out = step_text(shown(text))
    assert not UNSEEN.search(out) and len(out.encode()) < 60_000


@each
def test_a_step_with_it_is_saved_and_read_again(text: str, tmp_path: Path) -> None:
    shown(text).save(tmp_path / "step.json")
    assert Step.load(tmp_path / "step.json").rows[0].prompt == text
    (tmp_path / "step.json").read_bytes().decode("utf-8")


@each
def test_it_is_graded_in_bounded_time_and_is_not_right(text: str) -> None:
    rlkit.grade(r"\boxed{\sqrt{2}}", GOLD)  # starts the workers
    started = time.perf_counter()
    assert rlkit.grade(text, GOLD) == 0.0
    assert rlkit.grade(rf"\boxed{{{text}}}", GOLD) == 0.0
    assert time.perf_counter() - started < 20  # a call's limit is about a second; the machine may be busy


@each
def test_a_figure_can_have_it_as_a_label(text: str, tmp_path: Path) -> None:
    """Labels of arms are a user's; `$` would be a formula that does not parse."""
    figure, (axis,) = plots.panels(1, 1)
    axis.plot([0, 1], label=text[:60])
    axis.legend()
    plots.save(plots.finish(figure, text[:60], "caption"), tmp_path / "figure")
    assert (tmp_path / "figure.svg").stat().st_size > 0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(texts)
def test_any_text_is_shown_escaped(text: str) -> None:
    html, out = step_html(shown(text)), step_text(shown(text))
    assert Elements(html).found <= OWN
    assert not UNSEEN.search(html) and not UNSEEN.search(out)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(texts)
def test_no_text_is_right_by_accident_or_an_error(text: str) -> None:
    assert rlkit.grade(text, GOLD) in ((0.0, 1.0) if "31" in text else (0.0,))

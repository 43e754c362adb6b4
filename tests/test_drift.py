"""The table of releases: what a failure is called, which rows are worse than before, the range of the green ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import drift
from tests.drift import Row

FAILURES = {
    "import": (
        "x\nE   ImportError: cannot import name 'pad' from 'trl.utils' (/a/b.py)",
        "not importable: trl.utils.pad",
    ),
    "module": ("E   ModuleNotFoundError: No module named 'trl.models'", "no module: trl.models"),
    "attribute": (
        "E   AttributeError: 'GRPOTrainer' object has no attribute '_step'",
        "no attribute: GRPOTrainer._step",
    ),
    "argument": ("E   TypeError: f() got an unexpected keyword argument 'beta'", "no argument: f(beta)"),
    "numbers": ("E   assert 1 == 2\nE    +  where 1 = f()", "assert 1 == 2"),
    "other": ("Timeout of 900 s", "Timeout of 900 s"),
}
REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><skipped/></testcase>
<testcase name="c"><failure>E   ModuleNotFoundError: No module named 'trl.x'</failure></testcase>
<testcase name="d"><error>E   ModuleNotFoundError: No module named 'trl.x'</error></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_names_what_moved(name: str) -> None:
    text, told = FAILURES[name]
    assert drift.moved(text) == told


def test_a_report_is_counted_without_what_was_skipped_and_each_reason_once() -> None:
    assert drift.outcome(REPORT) == (1, 3, ["no module: trl.x"])


@pytest.mark.parametrize(
    ("green", "told"),
    [
        (["1.16.0"], ">=1.16,<1.17"),
        (["1.12.0", "1.13.0", "1.14.2", "1.16.0"], ">=1.12,!=1.15.*,<1.17"),
        (["5.9.0", "5.10.1"], ">=5.9,<5.11"),
    ],
    ids=["one", "hole", "two digits"],
)
def test_the_range_covers_the_green_releases_only(green: list[str], told: str) -> None:
    assert drift.span(green) == told


def test_a_row_is_worse_when_it_was_green_or_is_new() -> None:
    green, red = Row("1.16.0", "5.24.0", 3, 3), Row("1.12.0", "5.24.0", 2, 3, ["no module: a"])
    before = drift.table([green, red])
    now = [Row("1.16.0", "5.24.0", 2, 3, ["x"]), red, Row("1.17.0", "5.24.0", 0, 0, ["x"])]
    assert drift.states(before) == {("1.16.0", "5.24.0"): "green", ("1.12.0", "5.24.0"): "red"}
    assert [row.trl for row in drift.turned_red(before, now)] == ["1.16.0", "1.17.0"]


def test_nothing_that_ran_is_not_green() -> None:
    assert Row("1.16.0", "5.24.0").state == "red"


def test_the_chosen_tests_and_the_marks_are_there() -> None:
    assert all((drift.ROOT / name).is_file() for name in drift.TESTS)
    text = Path(drift.TABLE).read_text(encoding="utf-8")
    assert text.count(drift.BEGIN) == text.count(drift.END) == 1

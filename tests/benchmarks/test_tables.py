"""What stands between the marks of benchmarks/README.md, and the numbers that are worked out of times."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import readme, scaling
from benchmarks.__main__ import PARTS
from benchmarks.turns import CPU, Ran


@pytest.mark.parametrize("part", [*PARTS, "summary"])
def test_every_part_has_its_marks_in_the_readme(part: str) -> None:
    before, _, after = readme.between(part)
    assert before.endswith(f"<!-- {part}:begin -->\n") and after.startswith(f"\n<!-- {part}:end -->")


def test_a_part_replaces_its_own_lines_of_the_summary_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "README.md"
    page.write_text("top\n<!-- summary:begin -->\n<!-- summary:end -->\nrest\n", encoding="utf-8")
    monkeypatch.setattr(readme, "README", page)
    for part, measured in (("b", "old"), ("a", "1.0"), ("b", "new")):
        readme.summarise(part, [("time", measured)], order=("a", "b"))
    marks = ["<!-- summary:begin -->", "<!-- summary:end -->"]
    lines = [*readme.HEADER, "| time | 1.0 | `a` |", "| time | new | `b` |"]
    assert page.read_text(encoding="utf-8") == "\n".join(["top", marks[0], *lines, marks[1], "rest\n"])


def test_the_exponent_of_a_square_is_two() -> None:
    """Time 3 G^2 at five group sizes; points of the other axes do not count."""
    found = []
    for point in scaling.points():
        seconds = 3.0 * point.group**2 if point.width == 64 and point.tokens == 32 else 1e9
        found.append(scaling.Found(point, [Ran([(0.0, seconds)] * 3)]))
    assert scaling.exponent("group", found, 0) == pytest.approx((2, 2, 2))


def test_ratios_are_taken_step_by_step() -> None:
    """Steps of 1, 2 and 4 s against 2, 2 and 2: ratios .5, 1 and 2."""
    ours, theirs = (Ran([(0.0, s) for s in steps]) for steps in ((1.0, 2.0, 4.0), (2.0, 2.0, 2.0)))
    assert ours.over(theirs, CPU) == pytest.approx((0.5, 1.0, 2.0))

"""A step and a comparison as text for a terminal: bars over tokens that are pushed up, under those pushed down."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlkit.show import table_text
from rlkit.steps import marks, words
from rlkit.steps.marks import Card, Scale, number

if TYPE_CHECKING:
    from rlkit.steps.compare import Comparison
    from rlkit.steps.step import Step, StepRow

LIMITS = {"tokens": 10_000, "groups": 3, "rows": 10, "per_row": 200}
LINES = 2
"""Lines of tokens a rollout, at most."""
COMPARED = 32
UP = "▁▂▃▄▅▆▇█"
DOWN = "▔▀█"
INDENT = "    "


def step_text(step: Step, show: str | None = None, width: int = 100) -> str:
    """A step for a terminal, at most `width` columns wide; control characters are escaped.

    Args:
        step: the step.
        show: the quantity of the bars, one of `step.quantities`.
        width: columns, 40 or more.

    Raises:
        ValueError: the step does not have `show`.
    """
    bars = marks.scales(step, show)
    name = marks.chosen(step, bars, show)
    found, hidden = marks.cards(step, **LIMITS)
    main, _ = words.facts(step)
    others = ", ".join(other for other in bars if other != name)
    lines = [
        *_wrap(words.heading(step), width),
        *_wrap(words.headline(step), width),
        *_wrap(_key(bars[name]) if name else "", width),
        *[line for card in found for line in ["", *_card(card, step, bars.get(name), width)]],
        "",
        *_wrap(hidden, width),
        *_wrap(main, width),
        *[line for note in step.notes for line in _wrap("Note: " + marks.readable(note).replace("\n", " "), width)],
        *_wrap(f'Other bars: step.show("..."), with {others}.' if others else "", width),
    ]
    return "\n".join(lines)


def _key(scale: Scale) -> str:
    """What the bars say, and the longest one's number."""
    says = scale.sentence().replace("Bar up:", "Bar over a token:").replace("ar down, hatched:", "ar under it:")
    largest = scale.ticks()
    ends = [f"longest {'up' if place > 0 else 'down'} {text}" for place, text in largest if abs(place) == 1]
    return f"{scale.name}: {says}" + (f" Scale: {', '.join(ends)}." if ends else "")


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most so many columns; half as many letters where some are wide."""
    return textwrap.wrap(text, max(width if columns(text) <= len(text) else width // 2, 20))


def _card(card: Card, step: Step, scale: Scale | None, width: int) -> list[str]:
    """A group: its prompt, then a line of numbers and the strip of each rollout."""
    prompt = marks.readable(card.rows[0].prompt, 400).replace("\n", " ↵ ")
    right = words.gold(card.rows)
    head = [f"Prompt {card.group}: {prompt}"]
    head += [f"right answer {marks.visible(right, 40)}"] if right is not None else []
    names = words.columns(step)
    head += [card.rewards()] if "reward" in names else []
    lines = _wrap("  |  ".join(head), width)
    cells = [[str(i), *(_named(row, name) for name in names)] for i, row in enumerate(card.shown)]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    for row, texts in zip(card.shown, cells, strict=True):
        padded = [text.ljust(size) for text, size in zip(texts, widths, strict=True)]
        lines += _wrap("  ".join([*padded, words.STATUS[words.status(row)]]), width)
        lines += _strip(row, card.limit, scale, width)
    more = len(card.rows) - len(card.shown)
    return lines + ([f"{marks.count(more, 'more rollout')} of this prompt not shown."] if more else [])


def _named(row: StepRow, name: str) -> str:
    return f"{name} {words.cell(row, name)}"


def _strip(row: StepRow, limit: int, scale: Scale | None, width: int) -> list[str]:
    """The tokens of a rollout on at most `LINES` lines, with bars over and under them."""
    cells = [_token(row, t, scale) for t in range(min(len(row.tokens), limit))]
    lines: list[str] = []
    left = len(row.tokens)
    for _ in range(LINES):
        taken = _fitting(cells, width - len(INDENT))
        lines += [INDENT + line.rstrip() for line in _three(cells[:taken]) if line.strip()]
        cells, left = cells[taken:], left - taken
    return [*lines, f"{INDENT}… {marks.count(left, 'more token')}"] if left else lines


def _token(row: StepRow, t: int, scale: Scale | None) -> tuple[str, float]:
    """A token as text and the length of its bar."""
    values = row.values.get(scale.name, ()) if scale else ()
    text = marks.visible(row.tokens[t])
    return text, scale.bar(values[t]) if scale and t < len(values) else 0.0


def _fitting(cells: Sequence[tuple[str, float]], room: int) -> int:
    """How many of these tokens fit on a line; at least one."""
    used = 0
    for i, (text, _) in enumerate(cells):
        used += columns(text)
        if i and used > room:
            return i
    return len(cells)


def _three(cells: Sequence[tuple[str, float]]) -> list[str]:
    """Bars up, tokens, bars down. The bar of a token of several letters ends before the next one's begins."""
    over, under = "", ""
    for text, bar in cells:
        size = columns(text)
        wide = max(1, size - 1)
        over += (_block(UP, bar) * wide).ljust(size)
        under += (_block(DOWN, -bar) * wide).ljust(size)
    return [over, "".join(text for text, _ in cells), under]


def _block(blocks: str, length: float) -> str:
    """The block for a bar from 0 to 1: a space for none, at least the smallest for what can be seen."""
    return blocks[min(int(length * len(blocks)), len(blocks) - 1)] if length >= 0.005 else " "


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: two for wide letters, none for marks over letters."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def comparison_text(comparison: Comparison, width: int = 100) -> str:
    """Methods on the same rollouts, for a terminal: advantages side by side, what is trained, cosines.

    Args:
        comparison: what `rlkit.compare` gave.
        width: columns of the sentences; the tables are as wide as their methods ask for.
    """
    methods, shown = comparison.methods, comparison.rows.head(COMPARED)
    headers = ["prompt", "rollout", "completion", "reward", *(marks.readable(m, 40) for m in methods), ""]
    rows = [_compared(row, methods) for _, row in shown.iterrows()]
    hidden = len(comparison.rows) - len(shown)
    cosine = comparison.cosine
    lines = [
        *_wrap(words.compared_heading(comparison), width),
        *[line for sentence in words.compared_sentences(comparison) for line in _wrap("- " + sentence, width)],
        "",
        *_wrap(words.BRACKETS, width),
        table_text(headers, rows),
        *([f"{marks.count(hidden, 'more rollout')} not shown."] if hidden else []),
    ]
    if len(methods) > 1:
        body = [[marks.readable(name, 40), *(number(value) for value in cosine.loc[name])] for name in cosine.index]
        lines += ["", words.COSINE, table_text(["", *headers[4:-1]], body)]
    return "\n".join(lines)


def _compared(row: Any, methods: Sequence[str]) -> list[str]:
    texts = {m: number(row[f"advantage[{m}]"], sign=True, none="") for m in methods}
    cells = [text if row[f"trained[{m}]"] or not text else f"({text})" for m, text in texts.items()]
    start = [str(row["group"]), str(row["rollout"]), marks.visible(str(row["completion"]), 28)]
    signs = "signs differ" if words.signs_differ(row, methods) else ""
    return [*start, number(row["reward"], none="not scored"), *cells, signs]

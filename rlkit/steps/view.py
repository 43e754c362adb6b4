"""A step and a comparison as HTML: cards of rollouts, a bar under every token, no JavaScript.

The reader chooses the quantity with radio buttons: every token carries the length of its bar for each quantity as a CSS
custom property (a row carries what is the same for all its tokens), and the checked button says which one is drawn. A
bar's height is the magnitude; down and hatched means below zero; words say which rollouts are not trained. Colours come
from the page. Where the style is stripped, texts, tokens and the numbers of each rollout remain.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rlkit.show import NO_FORMULAS, table_html
from rlkit.steps import marks, words
from rlkit.steps.marks import Card, Scale, number
from rlkit.steps.style import style

if TYPE_CHECKING:
    import pandas as pd

    from rlkit.steps.compare import Comparison
    from rlkit.steps.step import Step, StepRow

LIMITS = {"tokens": 1030, "groups": 12, "rows": 16, "per_row": 200}
"""What is shown at most: tokens in all, groups, rollouts a group, tokens a rollout."""
OPEN = 3
"""Groups shown without a click."""
EXTRAS, NOTES, FACTS = 120, 12, 60
"""Characters of a rollout's columns under the pointer; notes, and rows of settings and metrics."""
COMPARED = 48
"""Rollouts of a comparison shown at most."""
Bars = Mapping[str, Scale]


def step_html(step: Step, show: str | None = None, title: str = "") -> str:
    """A step as HTML that any notebook or page can show; under 300 kB unless every token needs escaping.

    Args:
        step: the step.
        show: the quantity drawn first, one of `step.quantities`.
        title: a heading in place of method and step number.

    Raises:
        ValueError: the step does not have `show`.
    """
    bars = marks.scales(step, show)
    first = marks.chosen(step, bars, show)
    uid = _uid()
    found, hidden = marks.cards(step, **LIMITS)
    keys = _join(_key(letter, scale) for letter, scale in zip(_letters(bars), bars.values(), strict=True))
    inside = _join(
        [
            Markup("<legend><strong>{}</strong></legend>").format(marks.readable(title, 200) or words.heading(step)),
            Markup("<p>{}</p>").format(words.headline(step)),
            _choice(uid, bars, first),
            Markup("<div>{}{}</div>").format(keys, _folded([_card(card, bars, step) for card in found])),
            _paragraph(hidden),
            _foot(step),
        ],
        "\n",
    )
    return _output(uid, {letter: bars[name].signed for letter, name in zip(_letters(bars), bars, strict=True)}, inside)


def _uid() -> str:
    return f"rlk{secrets.token_hex(4)}"  # the ids of two outputs on one page, and of two sessions, must differ


def _output(uid: str, signed: Mapping[str, bool], inside: Markup) -> str:
    page = Markup('<div id="{}" class="{}"><style>{}</style>\n<fieldset>{}</fieldset></div>')
    return str(page.format(uid, NO_FORMULAS, Markup(style(uid, signed)), inside))


def _join(parts: Iterable[Markup], between: str = "") -> Markup:
    return Markup(between).join(parts)


def _letters(bars: Bars) -> str:
    return "abcdefghijklm"[: len(bars)]


def _paragraph(text: str) -> Markup:
    return Markup("<p>{}</p>").format(text) if text else Markup("")


def _choice(uid: str, bars: Bars, first: str) -> Markup:
    """The radio buttons, one a quantity."""
    button = Markup('<input type="radio" name="{0}" id="{0}{1}"{2}><label for="{0}{1}">{3}</label>\n')
    checked = {first: Markup(" checked")}
    buttons = [button.format(uid, x, checked.get(n, ""), n) for x, n in zip(_letters(bars), bars, strict=True)]
    return Markup("<span>Bars under the tokens show: </span>{}").format(_join(buttons)) if buttons else Markup("")


def _key(letter: str, scale: Scale) -> Markup:
    """What the bars of a quantity say, and the numbers of the scale as tokens with their bars."""
    sample = Markup('<bdi class="t" style="--{}:{:.0f}">{}</bdi>')
    samples = _join((sample.format(letter, 100 * place, text) for place, text in scale.ticks()), " ")
    strip = Markup(" <span>scale: {}</span>").format(samples) if samples else ""
    return Markup('<div class="k k{}"><b>{}</b>: {}{}</div>').format(letter, scale.name, scale.sentence(), strip)


def _folded(parts: Sequence[Markup]) -> Markup:
    """The first cards open, the rest behind a click."""
    rest = parts[OPEN:]
    fold = Markup("<details><summary>{}</summary>{}</details>")
    more = fold.format(marks.count(len(rest), "more prompt"), _join(rest)) if rest else Markup("")
    return _join([*parts[:OPEN], more])


def _card(card: Card, bars: Bars, step: Step) -> Markup:
    """A group: the prompt, the right answer, the rewards in words, and its rollouts as a table."""
    columns = words.columns(step)
    right = words.gold(card.rows)
    head = [
        Markup('<b>Prompt {}</b> <bdi class="p">{}</bdi>').format(card.group, marks.readable(card.rows[0].prompt)),
        *([Markup("right answer <bdi><b>{}</b></bdi>").format(right)] if right is not None else []),
        *([Markup("{}").format(card.rewards())] if "reward" in columns else []),
    ]
    names = _join(Markup('<th scope="col">{}</th>').format(name) for name in ("rollout", *columns, "status", "tokens"))
    body = _join((_row(i, row, card.limit, bars, columns) for i, row in enumerate(card.shown)), "\n")
    more = len(card.rows) - len(card.shown)
    return Markup('<section class="c"><div>{}</div>\n<table><thead><tr>{}</tr></thead>\n{}</table>{}</section>').format(
        _join(head, " · "),
        names,
        Markup("<tbody>{}</tbody>").format(body),
        _paragraph(f"{marks.count(more, 'more rollout')} of this prompt not shown." if more else ""),
    )


def _row(rollout: int, row: StepRow, limit: int, bars: Bars, columns: Sequence[str]) -> Markup:
    """A rollout: its numbers, what happens to it in words, and its tokens."""
    status = words.status(row)
    cell = Markup('<td class="n" data-c="{}">{}</td>')
    cells = _join(cell.format(name, words.cell(row, name)) for name in columns)
    same = {name for name in bars if len(set(row.values.get(name, ()))) == 1}
    return Markup('<tr class="{}"><th scope="row" title="{}" data-c="rollout">{}</th>{}{}{}</tr>').format(
        status,
        marks.readable("; ".join(f"{name}: {str(value)[:60]}" for name, value in row.extras.items()), EXTRAS),
        rollout if row.rollout is None else row.rollout,
        cells,
        Markup('<td class="w">{}</td>').format(words.STATUS[status]),
        Markup('<td class="s"{}>{}</td>').format(_style(row, 0, bars, same), _strip(row, limit, bars, same)),
    )


def _style(row: StepRow, t: int, bars: Bars, names: Iterable[str]) -> Markup:
    """The lengths of a token's bars as custom properties; bars that can be seen are at least a pixel."""
    lengths = []
    for letter, (name, scale) in zip(_letters(bars), bars.items(), strict=True):
        values = row.values.get(name, ())
        bar = scale.bar(values[t]) if name in names and t < len(values) else 0.0
        if abs(bar) >= 0.005:
            lengths.append(f"--{letter}:{math.copysign(max(6, round(abs(bar) * 100)), bar):.0f}")
    return Markup(' style="{}"').format(";".join(lengths)) if lengths else Markup("")


def _strip(row: StepRow, limit: int, bars: Bars, same: set[str]) -> Markup:
    """The tokens of a rollout."""
    own = [name for name in bars if name not in same]
    parts = []
    for t in marks.cut(len(row.tokens), limit):
        if t is None:
            gap = len(row.tokens) - limit
            parts.append(Markup('<span class="g"> … {} not shown … </span>').format(marks.count(gap, "token")))
            continue
        kind = "t e" if marks.special(row.tokens[t]) else "t"
        token, numbers = marks.visible(row.tokens[t]), words.numbers(row, t)
        parts.append(
            Markup('<bdi class="{}"{} title="{}">{}</bdi><wbr>').format(kind, _style(row, t, bars, own), numbers, token)
        )
    return _join(parts) if parts else Markup("<i>no tokens</i>")


def _foot(step: Step) -> Markup:
    """Loss and gradient, the notes, and the rest of the numbers folded away."""
    main, every = words.facts(step)
    rest = every[:FACTS]
    notes = _join(Markup("<li>{}</li>").format(marks.readable(note)) for note in step.notes[:NOTES])
    table = table_html(("setting or metric", "value"), rest) if rest else ""
    return Markup("{}{}{}").format(
        _paragraph(f"{main} Every number is under the pointer and in step.to_frame().".strip()),
        Markup("<ul>{}</ul>").format(notes) if notes else "",
        Markup("<details><summary>Settings and metrics ({})</summary>{}</details>").format(len(every), table)
        if rest
        else "",
    )


def comparison_html(comparison: Comparison) -> str:
    """Methods on the same rollouts: their advantages with bars, what each trains, the cosines of their gradients."""
    uid, rows, methods = _uid(), comparison.rows, comparison.methods
    scale = words.advantages(comparison)
    shown = rows.head(COMPARED)
    differ = any(words.signs_differ(row, methods) for _, row in shown.iterrows())
    body = [_compared(row, methods, scale, differ) for _, row in shown.iterrows()]
    headers = ["prompt / rollout", "completion", "reward", *methods, *(["signs"] if differ else [])]
    sentences = _join(Markup("<li>{}</li>").format(line) for line in words.compared_sentences(comparison))
    hidden = len(rows) - len(shown)
    inside = _join(
        [
            Markup("<legend><strong>{}</strong></legend>").format(words.compared_heading(comparison)),
            Markup("<ul>{}</ul>").format(sentences),
            _cosines(comparison),
            # the bars are always those of the advantage: a button that is checked and not shown
            Markup('<input type="radio" id="{}a" checked hidden>').format(uid),
            Markup('<div class="o">{}{}{}</div>').format(
                _key("a", scale), _paragraph(words.BRACKETS), table_html(headers, body)
            ),
            _paragraph(f"{marks.count(hidden, 'more rollout')} not shown." if hidden else ""),
        ],
        "\n",
    )
    return _output(uid, {"a": scale.signed}, inside)


def _compared(row: pd.Series, methods: Sequence[str], scale: Scale, differ: bool) -> list[Any]:
    """A rollout's cells: each method's advantage over its bar, in brackets where it is not trained."""
    cells = [_advantage(row[f"advantage[{m}]"], bool(row[f"trained[{m}]"]), scale) for m in methods]
    completion = Markup("<bdi>{}</bdi>").format(marks.visible(str(row["completion"]), 60))
    place = f"{row['group']} / {row['rollout']}"
    signs = ["differ" if words.signs_differ(row, methods) else ""] if differ else []
    return [place, completion, number(row["reward"], none="not scored"), *cells, *signs]


def _advantage(value: float, trained: bool, scale: Scale) -> Markup:
    if math.isnan(value):
        return Markup("")
    text = number(value, sign=True)
    bar = Markup('<bdi class="t" style="--a:{:.0f}">{}</bdi>')
    return bar.format(100 * scale.bar(value), text if trained else f"({text})")


def _cosines(comparison: Comparison) -> Markup:
    """The cosines as a table, where there are two methods or more."""
    if len(comparison.methods) < 2:
        return Markup("")
    cosine = comparison.cosine
    rows = [[name, *(number(value) for value in cosine.loc[name])] for name in cosine.index]
    table = table_html(["", *cosine.columns], rows)
    return Markup('{}<div class="o">{}</div>').format(_paragraph(words.COSINE), table)

"""Pieces of pages: escaped HTML for tables and verdicts, and text of docstrings made safe for Markdown."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from rlkit.claims import plain
from rlkit.show import SIGNS

ARXIV = re.compile(r"arXiv[ :](\d{4}\.\d{4,5})")
CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], kind: str = "") -> Markup:
    """A table; cells are escaped unless they are `Markup`. `kind` is the CSS class of the box that it stands in."""

    def line(cells: Sequence[Any], tag: str, scope: str = "") -> Markup:
        parts = (Markup(f"<{tag}{scope}>{escape(cell)}</{tag}>") for cell in cells)
        return Markup("<tr>{}</tr>").format(Markup("").join(parts))

    body = Markup("\n").join(line(row, "td") for row in rows)
    return Markup('<div class="{}"><table><thead>{}</thead>\n<tbody>{}</tbody></table></div>').format(
        kind, line(headers, "th", ' scope="col"'), body
    )


def code(text: Any) -> Markup:
    """Text in the typewriter face."""
    return Markup("<code>{}</code>").format(text)


def link(text: Any, target: str) -> Markup:
    """A link."""
    return Markup('<a href="{}">{}</a>').format(target, text)


def paper(arxiv: str) -> Markup:
    """A link to a paper by its arXiv id; nothing without one."""
    return link(f"arXiv {arxiv}", f"https://arxiv.org/abs/{arxiv}") if arxiv else Markup("")


def verdict(word: str) -> Markup:
    """A verdict as a coloured chip: sign and word say it, no colour has to."""
    kind = plain(word)
    return Markup('<span class="rl-verdict rl-{}">{} {}</span>').format(kind, SIGNS.get(kind, ""), word)


def tally(claims: Iterable[Mapping[str, Any]]) -> Markup:
    """How many claims have which verdict, as chips."""
    counts = Counter(plain(claim["verdict"]) for claim in claims)
    parts = (
        Markup('<span class="rl-verdict rl-{0}">{1} {2} {0}</span>').format(kind, sign, counts[kind])
        for kind, sign in SIGNS.items()
        if counts[kind]
    )
    return Markup(" ").join(parts)


def number(value: float) -> str:
    """A number to three digits."""
    return f"{value:.3g}"


def claim_row(claim: Mapping[str, Any], named: bool = True) -> list[Any]:
    """A row of a ledger: see `CLAIM_HEADS`."""
    lo, hi = claim["interval"]
    over = f"{claim['seeds']} seeds" if claim["seeds"] else f"n = {claim['n']}"
    said = Markup('<span class="rl-claim">{}</span><span class="rl-small">{}</span>').format(
        claim["statement"], claim["endpoint"]
    )
    note = Markup('<span class="rl-small">{}</span>').format(claim["note"]) if claim["note"] else ""
    return [
        verdict(claim["verdict"]),
        Markup('<span id="{}"></span>{}{}').format(claim["id"], said, note) if named else said,
        f"{claim['op']} {claim['threshold']:g} {claim['unit']}",
        Markup("{}<br>[{}, {}]").format(number(claim["estimate"]), number(lo), number(hi)),
        over,
        claim["expected"],
    ]


CLAIM_HEADS = ("verdict", "claim and end point", "claimed", "estimate, 95 % interval", "over", "guess")


def prose(text: str) -> str:
    """A docstring as Markdown: signs that Markdown would take for markup are shown, arXiv ids become links.

    Text that is indented (an equation, a table) is shown letter by letter.
    """
    blocks = re.split(r"(?m)((?:^ {4}.*\n?(?:\n(?= {4}))?)+)", text)
    shown = (_equation(block) if i % 2 else "\n".join(map(_safe, block.split("\n"))) for i, block in enumerate(blocks))
    return "".join(shown)


def _equation(block: str) -> str:
    inside = textwrap.dedent(block).strip("\n")
    return f"``` {{ .text .rl-equation }}\n{inside}\n```\n"


def _safe(line: str) -> str:
    """Parts between backticks stay."""
    parts = CODE.split(line)
    for i in range(0, len(parts), 2):
        shown = re.sub(r"([\\*_\[\]$#])", r"\\\1", parts[i]).replace("<", "&lt;")
        parts[i] = ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", shown)
    return "".join(parts)


def front(**values: Any) -> str:
    """The front matter of a page."""
    import yaml

    return f"---\n{yaml.safe_dump(values, allow_unicode=True, sort_keys=False)}---\n\n"

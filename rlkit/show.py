"""Tables for people: the catalogue and the committed verdicts, as text, HTML and Markdown.

HTML takes its colours from the page, so that it reads on light and dark, and every value is escaped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rlkit import paths

if TYPE_CHECKING:
    from rlkit.claims import Change
    from rlkit.method import Method

Row = Sequence[Any]

NO_FORMULAS = "tex2jax_ignore mathjax_ignore"
"""Classes that keep MathJax from typesetting what a model wrote between two dollars."""
CELL = "text-align:left;vertical-align:top;padding:.25em .7em;border-bottom:1px solid rgba(128,128,128,.4)"
SIGNS = {"supported": "✔", "refuted": "✘", "inconclusive": "≈"}
"""A sign beside each verdict: the word and the sign say it, no colour has to."""


FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a cell of a spreadsheet begins with when it is executed; the last four are the same signs at full width."""


def csv_cell(text: Any) -> Any:
    """A text for a table that people open: one line, no formula, valid UTF-8. Numbers stay as they are."""
    if not isinstance(text, str):
        return text
    line = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return f"'{line}" if line.startswith(FORMULA) else line


def table_text(headers: Sequence[str], rows: Iterable[Row]) -> str:
    """A table in plain text, columns padded."""
    lines = [[str(cell) for cell in row] for row in [headers, *rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in ruled)


def table_html(headers: Sequence[str], rows: Iterable[Row], caption: str = "") -> Markup:
    """A table in HTML. Cells are escaped, unless they are `Markup` already."""

    def line(cells: Row, tag: str) -> Markup:
        style = CELL + (";font-weight:bold" if tag == "th" else "")
        scope = Markup(' scope="col"') if tag == "th" else ""
        parts = [Markup('<{0}{1} style="{2}">{3}</{0}>').format(Markup(tag), scope, style, cell) for cell in cells]
        return Markup("<tr>{}</tr>").format(Markup("").join(parts))

    body = Markup("\n").join(line(row, "td") for row in rows)
    head = Markup('<caption style="text-align:left">{}</caption>').format(caption) if caption else ""
    style = "border-collapse:collapse;color:inherit;background:transparent"
    return Markup('<table class="{}" style="{}">{}<thead>{}</thead>\n<tbody>{}</tbody></table>').format(
        NO_FORMULAS, style, head, line(headers, "th"), body
    )


def table_markdown(headers: Sequence[str], rows: Iterable[Row]) -> str:
    """A table in Markdown; pipes, tags and line breaks in cells are made harmless."""

    def line(cells: Row) -> str:
        return (
            "| "
            + " | ".join(str(cell).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for cell in cells)
            + " |"
        )

    return "\n".join([line(headers), "|" + " --- |" * len(headers), *map(line, rows)])


CATALOG = ("name", "what it does", "paper", "notebook", "verdicts")


def catalog_text(methods: Iterable[Method]) -> str:
    """All methods with paper, notebook and verdicts, as text."""
    rows = [
        (method.name, method.summary, f"arXiv {method.paper}" if method.paper else "-", names or "-", verdicts or "-")
        for method, names, verdicts in _catalog(methods)
    ]
    return table_text(CATALOG, rows)


def catalog_html(methods: Iterable[Method]) -> str:
    """All methods with paper, notebook and verdicts, as HTML."""
    rows = [
        (Markup("<code>{}</code>").format(method.name), method.summary, paper_link(method.paper), names, verdicts)
        for method, names, verdicts in _catalog(methods)
    ]
    return str(table_html(CATALOG, rows))


def paper_link(paper: str) -> Markup:
    """A link to a paper by its arXiv id."""
    return Markup('<a href="https://arxiv.org/abs/{0}">arXiv {0}</a>').format(paper) if paper else Markup("")


def _catalog(methods: Iterable[Method]) -> Iterator[tuple[Method, str, str]]:
    sources = notebook_sources()
    claims = {notebook: document["claims"] for notebook, document in committed_claims().items()}
    for method in methods:
        slugs = notebooks_of(method, sources)
        yield method, ", ".join(slugs), count_verdicts(claim for slug in slugs for claim in claims.get(slug, ()))


def notebook_sources() -> dict[str, tuple[str, str]]:
    """By slug: the source of the first cell, and of the cell tagged `arms`, of each notebook."""
    from rlkit.notebooks import available

    found = {}
    for slug, path in available().items():
        cells = json.loads(path.read_text(encoding="utf-8")).get("cells", [])
        texts = ["".join(cell["source"]) for cell in cells]
        arms = [text for cell, text in zip(cells, texts, strict=True) if "arms" in cell["metadata"].get("tags", [])]
        found[slug] = ("".join(texts[:1]), "\n".join(arms))
    return found


def notebooks_of(method: Method, sources: Mapping[str, tuple[str, str]]) -> list[str]:
    """The notebooks about a method: those whose title names its paper, else those that have it among their arms."""
    about = [slug for slug, (title, _) in sources.items() if method.paper and method.paper in title]
    quoted = (f'"{method.name}"', f"'{method.name}'")
    return about or [slug for slug, (_, arms) in sources.items() if any(name in arms for name in quoted)]


def count_verdicts(claims: Iterable[Mapping[str, Any]]) -> str:
    """For example `2 supported, 1 refuted`."""
    counts = Counter(claim["verdict"] for claim in claims)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items(), key=lambda item: item[0][::-1]))


def committed_claims() -> dict[str, dict[str, Any]]:
    """The committed claims documents by notebook, in the order of the notebooks.

    Raises:
        ValueError: one of the files is broken.
    """
    from rlkit.claims import read_claims
    from rlkit.notebooks import available

    files = {slug: paths.committed(slug) / "claims.json" for slug in available()}
    return {slug: read_claims(path) for slug, path in files.items() if Path(path).is_file()}


VERDICTS = ("claim", "claimed", "estimate [95 % interval]", "over", "expected", "verdict")


def verdict_rows(claims: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row per claim of a claims document, in the columns of `VERDICTS`."""
    return [
        (
            claim["statement"],
            f"{claim['op']} {claim['threshold']:g} {claim['unit']}".rstrip(),
            estimate(claim),
            f"{claim['seeds']} seeds" if claim["seeds"] else f"n = {claim['n']}",
            claim["expected"],
            signed(claim["verdict"]),
        )
        for claim in claims
    ]


def estimate(claim: Mapping[str, Any]) -> str:
    """For example `-0.012 [-0.03, 0.006]`."""
    low, high = claim["interval"]
    return f"{claim['estimate']:.3g} [{low:.3g}, {high:.3g}]"


def signed(verdict: str) -> str:
    """A verdict with its sign."""
    return f"{SIGNS.get(verdict.split()[-1], '')} {verdict}".strip()


def verdicts_markdown() -> str:
    """For the README: a line for each notebook, and behind a click every committed claim, notebook by notebook."""
    counts: list[Row] = []
    rows: list[Row] = []
    for slug, document in committed_claims().items():
        link = f"[{slug}]({_notebook_file(slug)})"
        counts.append((link, _title(slug), count_verdicts(document["claims"])))
        for number, row in enumerate(verdict_rows(document["claims"])):
            rows.append((link if number == 0 else "", *row))
    if not rows:
        return "No notebook has been recorded yet."
    short = table_markdown(("notebook", "about", "claims"), counts)
    every = table_markdown(("notebook", *VERDICTS), rows)
    return f"{short}\n\n<details><summary>All {len(rows)} claims</summary>\n\n{every}\n\n</details>"


def _title(slug: str) -> str:
    """The heading of a notebook."""
    from rlkit.notebooks import available

    cells = json.loads(available()[slug].read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).partition("\n")[0].lstrip("# ")


def _notebook_file(slug: str) -> str:
    from rlkit.notebooks import available

    path = available()[slug]
    return f"notebooks/{path.relative_to(paths.notebooks()).as_posix()}"


def changes_text(outcomes: Iterable[tuple[str, Sequence[Change]]]) -> str:
    """The verdicts of a run beside the committed ones, as text; drift is in units of half the committed interval."""
    rows = [
        (slug, change.id, change.committed, change.new, "-" if change.drift is None else f"{change.drift:.2f}")
        for slug, changes in outcomes
        for change in changes
    ]
    return table_text(("notebook", "claim", "committed", "this run", "drift"), rows)

"""The front page, a gallery of figures with their verdicts, and the ledger of all claims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from rlkit.site import parts
from rlkit.site.evidence import Evidence, Picture

LEAD = """Post-training methods for language models, one notebook each, on a laptop CPU in minutes. Every notebook
states the paper's claims so that they can fail, runs them with several seeds against the control that the paper left
out, and prints the verdict, whatever it is. These are the figures of the recorded runs."""
COMMANDS = "make figures   # runs every notebook, draws every figure\nmake lab       # opens the notebooks"
RULE = """A claim and its end point are written down before the run, with a guess. The estimate is the mean over seeds
of a paired difference, with its 95 % Student t interval. **Supported**: the whole interval is on the claimed side of
the threshold. **Refuted**: it is on the other side. **Inconclusive**: the rest. A refuted claim is a result and
stays."""


def front_page(evidence: Mapping[str, Evidence], images: str) -> str:
    """The gallery; `images` is the folder of the pictures as seen from the page."""
    claims = _claims(evidence)
    body = "\n".join(str(_notebook(notebook, images)) for notebook in evidence.values())
    head = parts.front(title="Gallery", description="Figures and verdicts", hide=["navigation", "toc"])
    return f"""{head}# Watch methods train, and see which claims hold {{ .rl-title }}

<div class="rl-hero" markdown>

{LEAD}

<p class="rl-tally">{parts.tally(claims)} <a href="claims.html">all {len(claims)} claims</a></p>

```bash
{COMMANDS}
```

</div>

{body}
"""


def _claims(evidence: Mapping[str, Evidence]) -> list[Mapping[str, Any]]:
    return [claim for notebook in evidence.values() for claim in notebook.claims.values()]


def _notebook(notebook: Evidence, images: str) -> Markup:
    """One notebook: title, what it asks, how its claims fell, its figures."""
    page = f"notebooks/{notebook.slug}.html"
    shown = notebook.committed or notebook.pictures
    source = f"a run with the preset {notebook.preset}, not recorded yet" if shown and not notebook.committed else ""
    cards = Markup("\n").join(_card(notebook, picture, page, images) for picture in shown.values())
    empty = Markup('<p class="rl-small">No figure is recorded yet.</p>')
    return Markup(
        '<section class="rl-book" aria-labelledby="{slug}">\n<h2 id="{slug}"><a href="{page}">{title}</a></h2>\n'
        '<p class="rl-asks">{asks}</p>\n<p class="rl-small">{tally} {source}</p>\n'
        '<div class="rl-gallery">\n{cards}\n</div>\n</section>'
    ).format(
        slug=notebook.slug,
        page=page,
        title=notebook.title,
        tally=parts.tally(notebook.claims.values()),
        source=source,
        asks=_begin(notebook.summary),
        cards=cards or empty,
    )


def _begin(text: str, most: int = 260) -> str:
    """The first sentences of a paragraph of Markdown, as plain text."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "").replace("`", "").replace("$", "")
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z])", words)
    kept = [s for i, s in enumerate(sentences) if i == 0 or len(" ".join(sentences[: i + 1])) <= most]
    return " ".join(kept)


def _card(notebook: Evidence, picture: Picture, page: str, images: str) -> Markup:
    """A figure, and the verdicts that its title is computed from."""
    rows = [notebook.claims[name] for name in picture.claims]
    said = Markup("").join(
        Markup('<li>{} <a href="claims.html#{}--{}">{}</a></li>').format(
            parts.verdict(claim["verdict"]), notebook.slug, claim["id"], claim["statement"]
        )
        for claim in rows
    )
    return Markup(
        '<article class="rl-card"><a href="{0}"><img src="{1}/{2}/{3}" alt="Figure: {4}" loading="lazy"></a>'
        '<ul class="rl-verdicts">{5}</ul></article>'
    ).format(page, images, notebook.slug, picture.path.name, picture.title, said)


def ledger(evidence: Mapping[str, Evidence]) -> str:
    """All claims with their guesses, estimates and verdicts."""
    return "\n".join([f"{parts.front(title='Claims', hide=['navigation', 'toc'])}# Claims", "", *_ledger(evidence)])


def _ledger(evidence: Mapping[str, Evidence]) -> Iterator[str]:
    claims = _claims(evidence)
    right = sum(claim["expected"] == claim["verdict"] for claim in claims)
    yield f"{RULE}\n\n{parts.tally(claims)} {len(claims)} claims in all; the guess was right for {right}.\n"
    for slug, notebook in evidence.items():
        yield f"## {notebook.title} {{ #{slug} }}\n\n[The notebook](notebooks/{slug}.md)\n"
        rows = [parts.claim_row(_prefixed(slug, claim)) for claim in notebook.claims.values()]
        yield f"{parts.table(parts.CLAIM_HEADS, rows, 'rl-ledger')}\n" if rows else "Nothing is recorded yet.\n"


def _prefixed(slug: str, claim: Mapping[str, Any]) -> dict[str, Any]:
    """Ids are unique in a notebook only."""
    return {**claim, "id": f"{slug}--{claim['id']}"}

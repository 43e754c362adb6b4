"""What the site generator calls while it builds: puts the outputs of notebooks into their places, and sets formulas.

Formulas become MathML, which browsers draw themselves: no script and no font has to be loaded.
"""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

PLACE = re.compile(r'<div class="rl-output" data-place="(\d+)"></div>')
MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
SOURCE = '<details class="mkdocstrings-source" data-search-exclude>'
"""The search finds what a function says, not every line of its code."""
OUTPUTS = "outputs.json"


@cache
def _outputs(folder: Path) -> dict[str, list[str]]:
    return dict(json.loads((folder / OUTPUTS).read_text(encoding="utf-8")))


def formula(latex: str, block: bool) -> str:
    """LaTeX as MathML.

    Raises:
        ValueError: a command that the converter does not know; it would be shown letter by letter.
    """
    from latex2mathml.converter import convert

    made = str(convert(latex, display="block" if block else "inline"))
    unknown = re.search(r"\\[A-Za-z]+", made)
    if unknown:
        raise ValueError(f"No MathML for {unknown.group()} in the formula {latex.strip()!r}: write it in another way.")
    return re.sub(r"<mo>([A-Za-z]{2,})</mo>", r"<mi>\1</mi>", made)  # names of functions, not signs with wide spaces


def on_page_content(content: str, *, page: Any, config: Any, **_: Any) -> str:
    """Called with the HTML of each page (an event of MkDocs)."""

    def put(found: re.Match[str]) -> str:
        own = _outputs(Path(config["config_file_path"]).parent)[page.file.src_uri]
        return f'<div class="rl-output">{own[int(found[1])]}</div>'

    def shown(found: re.Match[str]) -> str:
        return formula(html.unescape(found[3]), found[2] == "[")

    content = content.replace('<details class="mkdocstrings-source">', SOURCE)
    return PLACE.sub(put, MATH.sub(shown, content))

"""Pages that are texts of the repository: README, teaching, how to contribute, changes. Links are led to pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from rlkit.cli import BEGIN, END
from rlkit.site import parts

GUIDES = {
    "README.md": ("guide/start.md", "Start"),
    "docs/teaching.md": ("guide/teaching.md", "Teaching"),
    "CONTRIBUTING.md": ("guide/contributing.md", "Contributing"),
    "CHANGELOG.md": ("guide/changes.md", "Changes"),
}
"""Files of the repository that become pages, with their places and titles."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
NOTEBOOK = re.compile(r"(?:^|/)notebooks/(?:.*/)?(?:\d\d_)?(\w+)\.ipynb$")
METHOD = re.compile(r"(?:^|/)rlkit/methods/(\w+)\.py$")
FIGURE = re.compile(r"(?:^|/)figures/(\w+)/(\w+)\.(svg|png)$")
CLAIMS = re.compile(r"(?:^|/)figures/(\w+)/claims\.json$")


def relink(text: str, page: str, has: Callable[[str], bool]) -> str:
    """The Markdown of `page` with links to files of the repository turned into links to pages.

    Args:
        text: Markdown.
        page: where it will stand, below the root of the site.
        has: says whether the site has a page or picture of this name. What leads nowhere becomes plain text.
    """
    up = "../" * (len(PurePosixPath(page).parts) - 1)

    def led(found: re.Match[str]) -> str:
        bang, words, target = found.groups()
        if re.match(r"[a-z]+:|#|<", target):
            return found.group()
        path, _, anchor = target.partition("#")
        place = _place(path.lstrip("./"))
        if place.partition("#")[0] and has(place.partition("#")[0]):
            return f"{bang}[{words}]({up}{place}{'#' + anchor if anchor and '#' not in place else ''})"
        return words

    return LINK.sub(led, text)


def _place(path: str) -> str:
    """The page of a file of the repository; empty where there is none."""
    if path in GUIDES:
        return GUIDES[path][0]
    if found := NOTEBOOK.search(path):
        return f"notebooks/{found[1]}.md"
    if found := METHOD.search(path):
        return f"api/methods.md#rlkit.methods.{found[1]}"
    if found := FIGURE.search(path):
        return f"notebooks/images/recorded/{found[1]}/{found[2]}.{found[3]}"
    if found := CLAIMS.search(path):
        return f"claims.md#{found[1]}"
    return ""


def guides(root: Path) -> dict[str, tuple[str, str]]:
    """The guides that are there: page to title and Markdown, links as they were."""
    files = {place: (title, root / name) for name, (place, title) in GUIDES.items()}
    found = {p: (title, path.read_text(encoding="utf-8")) for p, (title, path) in files.items() if path.is_file()}
    return {
        place: (title, parts.front(title=title) + _without_verdicts(text)) for place, (title, text) in found.items()
    }


def _without_verdicts(text: str) -> str:
    """The README's table of verdicts is a page here."""
    table = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return table.sub("See [all claims and their verdicts](../claims.md) and the [gallery](../index.md).", text)


def logs(readme: str) -> str:
    """The page about logged metrics: the README's section, under a heading of its own."""
    section = re.search(r"^## (What the trainer's logs mean)\n(.*?)(?=^## |\Z)", readme, re.MULTILINE | re.DOTALL)
    title, text = (section[1], section[2]) if section else ("Logs", "See the documentation of TRL's `GRPOTrainer`.\n")
    return f"{parts.front(title='Logs')}# {title}\n{text}"

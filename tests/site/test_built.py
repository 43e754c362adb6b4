"""The site as it is built: complete, without a link that leads nowhere, and without anything loaded from elsewhere."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from rlkit.method import catalog
from rlkit.notebooks import available
from tests import sites

pytestmark = pytest.mark.slow
LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
RELATIONS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
FOREIGN = re.compile(r"^(?:https?:)?//")


class Page(HTMLParser):
    """What a page loads, links to, and can be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.bare: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        self.ids |= {have[name] for name in ("id", "name") if name in have}
        if tag in LOADS and LOADS[tag] in have:
            self.loads.append(have[LOADS[tag]])
        if tag == "link" and set(have.get("rel", "").split()) & RELATIONS:
            self.loads.append(have.get("href", ""))
        if tag == "a" and "href" in have:
            self.links.append(have["href"])
        if tag == "img" and not have.get("alt", "").strip():
            self.bare.append(have.get("src", ""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return sites.site(tmp_path_factory)


@pytest.fixture(scope="module")
def pages(folder) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(folder.rglob("*.html"))}


def test_every_method_notebook_and_claim_has_its_page(folder) -> None:
    for method in catalog():
        assert (folder / "methods" / f"{method.name}.html").is_file()
    for slug in available():
        assert (folder / "notebooks" / f"{slug}.html").is_file()
    for name in ("index", "claims", "logs", "guide/start", "guide/contributing", "api/index"):
        assert (folder / f"{name}.html").is_file(), name


def test_nothing_is_loaded_from_elsewhere(folder, pages) -> None:
    """Scripts, styles, fonts and pictures, in pages and style sheets; what scripts load is seen in the browser."""
    found = {(path.name, load) for path, page in pages.items() for load in page.loads if FOREIGN.match(load)}
    for path in folder.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        found |= {(path.name, load) for load in re.findall(r"url\(['\"]?([^'\")]+)|@import ['\"]([^'\"]+)", text)
                  if FOREIGN.match("".join(load))}  # fmt: skip
    assert found == set()


def test_every_link_inside_leads_somewhere(folder, pages) -> None:
    @cache
    def ids(path: Path) -> frozenset[str]:
        return frozenset(pages[path].ids) if path in pages else frozenset()

    lost = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links start at the root of a server
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or FOREIGN.match(link):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target.suffix == ".html" and anchor not in ids(target)):
                lost.append(f"{path.relative_to(folder)}: {link}")
    assert lost == []


def test_every_picture_is_described(folder, pages) -> None:
    bare = {f"{path.relative_to(folder)}: {src}" for path, page in pages.items() for src in page.bare}
    assert bare == set()
    assert sum("<img" in path.read_text(encoding="utf-8") for path in pages) >= 2


def test_no_formula_is_left_as_latex_and_no_output_without_its_place(folder) -> None:
    for path in folder.glob("notebooks/*.html"):
        text = path.read_text(encoding="utf-8")
        assert "arithmatex" not in text and "data-place" not in text, path.name
    run = (folder / "notebooks" / f"{sites.RUN}.html").read_text(encoding="utf-8")
    assert "<math" in run and 'id="rlk' in run and "Executed on" in run


def test_the_search_knows_methods_and_functions(folder) -> None:
    index = (folder / "search" / "search_index.js").read_text(encoding="utf-8")
    for word in ("mc_grpo", "median_pivot", "smallest_detectable"):
        assert word in index
    assert len(index) < 3_000_000


def test_the_site_stays_small(folder) -> None:
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 40_000_000

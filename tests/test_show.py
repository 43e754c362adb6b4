"""rlkit.show: tables as text, HTML and Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from rlkit import show
from rlkit.claims import Claim, judge, write_claims
from rlkit.method import Method

NASTY = '<script>alert("x")</script> & | `'


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _parse(html: str) -> _Parser:
    parser = _Parser()
    parser.feed(html)
    return parser


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notebook `demo` about arXiv 2601.22582, with one committed claim."""
    monkeypatch.setenv("RLKIT_ROOT", str(tmp_path))
    (tmp_path / "notebooks").mkdir()
    arms = nbformat.v4.new_code_cell('arms = [rlkit.arm("grpo")]', metadata={"tags": ["arms"]})
    cells = [nbformat.v4.new_markdown_cell("# Median (arXiv 2601.22582)"), arms]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks" / "07_demo.ipynb")
    claim = Claim("wins", f"It wins {NASTY}", "difference", ">", 0.0, "share", "refuted", note="n")
    verdict = judge(claim, [0.1, 0.11, 0.12, 0.13, 0.14])
    (tmp_path / "figures" / "demo").mkdir(parents=True)
    write_claims(tmp_path / "figures" / "demo" / "claims.json", "demo", "full", "0", [verdict])
    return tmp_path


METHODS = [
    Method("mc_grpo", summary=f"The median. {NASTY}", paper="2601.22582"),
    Method("grpo", summary="The mean.", paper="2402.03300"),
    Method("other", summary="In no notebook.", no_reduction="none"),
]


def test_catalogue_shows_papers_notebooks_and_verdicts(workspace: Path) -> None:
    lines = show.catalog_text(METHODS).splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["name", "what it does", "paper", "notebook", "verdicts"]
    assert lines[2].endswith("arXiv 2601.22582  demo      1 supported"), "the notebook whose title names the paper"
    assert lines[3].endswith("arXiv 2402.03300  demo      1 supported"), "the notebook that has it among its arms"
    assert re.search(r"-\s+-\s+-$", lines[4])


def test_html_escapes_everything_and_sets_no_colours_of_its_own(workspace: Path) -> None:
    html = show.catalog_html(METHODS)
    parser = _parse(html)
    assert "script" not in parser.tags
    assert any(NASTY in text for text in parser.texts)
    assert '<a href="https://arxiv.org/abs/2601.22582">arXiv 2601.22582</a>' in html
    colours = re.findall(r"#[0-9a-f]{3,6}\b|background:(?!transparent)|color:(?!inherit)", html)
    assert not colours, "readable on light and on dark"


def test_readme_table_has_one_row_per_claim_and_links_the_notebook(workspace: Path) -> None:
    short, every = [row for row in show.verdicts_markdown().splitlines() if row.startswith("| [demo]")]
    assert short.endswith("| 1 supported |")
    assert every.startswith("| [demo](notebooks/07_demo.ipynb) | It wins &lt;script>")
    cells = re.split(r"(?<!\\) \| ", every.strip("| "))
    assert cells[2:] == ["> 0 share", "0.12 [0.1, 0.14]", "5 seeds", "refuted", "✔ supported"]
    assert len(cells) == 7, "a pipe in a cell opens no new column"


def test_changes_stand_beside_each_other() -> None:
    from rlkit.claims import Change

    one, two = Change("wins", "supported", "preliminary refuted", 1.234), Change("n", "none", "refuted", None)
    text = show.changes_text([("demo", [one, two])])
    assert re.search(r"demo\s+wins\s+supported\s+preliminary refuted\s+1\.23", text)
    assert re.search(r"demo\s+n\s+none\s+refuted\s+-", text)

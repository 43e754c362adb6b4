"""A notebook as a page: its text, its code, and the outputs of a run that has been; nothing is executed.

Outputs do not go through Markdown, which would read their blank lines and stars: a page holds a numbered place for
each, and the hook of the site generator puts the HTML there at the end (`hook.py`).
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rlkit.site import parts
from rlkit.site.evidence import Evidence, Picture, cell_figures

if TYPE_CHECKING:
    from nbformat import NotebookNode

LONG = 24
"""Lines of code that are shown at once; longer cells are folded."""
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n(.*?)^[ \t]*### END SOLUTION", re.MULTILINE | re.DOTALL)
ANSI = re.compile(r"\x1b\[[0-9;]*m")
HIDDEN = {"injected-parameters", "colab"}


@dataclass
class Page:
    """A page under way: its Markdown, and the files and outputs that belong to it."""

    evidence: Evidence
    lines: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    """Pictures by name, for the folder `images/SLUG/`."""
    outputs: list[str] = field(default_factory=list)
    """HTML by place."""
    heading: str = ""
    """The heading above, for the description of a picture that has no title of its own."""

    @property
    def images(self) -> str:
        """The folder of the pictures, as seen from the page."""
        return f"images/{self.evidence.slug}"

    def put(self, html: str) -> None:
        """An output at this point of the page."""
        self.lines += ["", f'<div class="rl-output" data-place="{len(self.outputs)}"></div>', ""]
        self.outputs.append(html)

    def image(self, name: str, content: bytes, alt: str) -> None:
        """A picture at this point of the page."""
        self.files[name] = content
        html = Markup('<figure class="rl-figure"><img src="{}/{}" alt="{}" loading="lazy"></figure>')
        self.put(html.format(self.images, name, alt))


def page(evidence: Evidence) -> Page:
    """The page of a notebook: the executed copy, or the source with the committed figures and verdicts put in."""
    made = Page(evidence)
    notebook = evidence.executed or evidence.source
    for number, cell in enumerate(notebook.cells):
        if HIDDEN & set(cell.metadata.get("tags", [])):
            continue
        if cell.cell_type == "markdown":
            _text(made, cell, number)
        elif cell.cell_type == "code" and cell.source.strip():
            _code(made, cell, number)
    return made


def _text(made: Page, cell: NotebookNode, number: int) -> None:
    headings = re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE)
    made.heading = headings[-1] if headings else made.heading
    made.lines += ["", cell.source, ""]
    if number == 0:
        made.put(str(_banner(made.evidence)))


def _banner(evidence: Evidence) -> Markup:
    """Where what follows comes from, and how the claims fell."""
    if evidence.executed is None:
        shown = "Code and recorded figures; no run of this version lies in build/, so tables and prints are left out"
        shown = shown if evidence.committed else "Code only: this notebook has not been run here yet"
    elif evidence.preset == "recorded":
        shown = f"Drawn from recorded data on {evidence.when}"
    else:
        shown = f"Executed on {evidence.when} with the preset {evidence.preset}"
    html = Markup('<p class="rl-banner"><span>{}.</span> {}</p>')
    return html.format(shown, parts.tally(evidence.claims.values()))


def _code(made: Page, cell: NotebookNode, number: int) -> None:
    shown, solution = blanked(cell.source)
    if "parameters" in cell.metadata.get("tags", []):
        made.lines += _folded("Parameters", shown)
    elif shown.count("\n") >= LONG:
        made.lines += _folded(f"Code: {_first(shown)}", shown)
    else:
        made.lines += ["", *_fence(shown)]
    if solution:
        made.lines += _folded("A solution", solution)
    drawn = iter([made.evidence.pictures[name] for name, _ in _figures(made, cell)])
    if made.evidence.executed is None:
        _recorded(made, cell, drawn)
    for place, output in enumerate(cell.outputs):
        _output(made, output, f"cell{number}_{place}", drawn)


def _figures(made: Page, cell: NotebookNode) -> Iterator[tuple[str, Any]]:
    return ((name, ids) for name, ids in cell_figures(cell.source) if name in made.evidence.pictures)


def _recorded(made: Page, cell: NotebookNode, drawn: Iterator[Picture]) -> None:
    """The committed figure or verdicts of a cell that was not executed."""
    for picture in drawn:
        made.image(picture.path.name, picture.path.read_bytes(), _alt(picture))
    if ".judge(" in cell.source and made.evidence.claims:
        rows = [parts.claim_row(claim, named=False) for claim in made.evidence.claims.values()]
        made.put(str(parts.table(parts.CLAIM_HEADS, rows, "rl-ledger")))


def _output(made: Page, output: NotebookNode, name: str, drawn: Iterator[Picture]) -> None:
    """One output of an executed cell. What is printed to stderr (progress, warnings of libraries) is no result."""
    if output.output_type == "stream":
        if output.name == "stdout" and output.text.strip():
            made.put(str(_plain(output.text)))
        return
    data: Mapping[str, Any] = output.get("data", {})
    if "image/png" in data or "image/svg+xml" in data:
        _picture(made, data, name, next(drawn, None))
    elif "text/latex" in data and data["text/latex"].startswith(r"\begin{Verbatim}"):  # IPython's Code
        made.lines += ["", *_fence(data["text/plain"])]
    elif "text/markdown" in data:
        made.lines += ["", data["text/markdown"], ""]
    elif "text/html" in data:
        made.put(data["text/html"])
    elif "text/plain" in data and not any("widget" in kind for kind in data):
        made.put(str(_plain(data["text/plain"])))


def _picture(made: Page, data: Mapping[str, Any], name: str, picture: Picture | None) -> None:
    """The SVG file of a named figure, else the picture in the output."""
    if picture is not None:
        made.image(picture.path.name, picture.path.read_bytes(), _alt(picture))
    elif "image/svg+xml" in data:
        made.image(f"{name}.svg", data["image/svg+xml"].encode(), f"Figure in the section {made.heading}")
    else:
        made.image(f"{name}.png", base64.b64decode(data["image/png"]), f"Figure in the section {made.heading}")


def _alt(picture: Picture) -> str:
    return f"Figure: {picture.title}"


def _plain(text: str) -> Markup:
    return Markup("<pre><code>{}</code></pre>").format(ANSI.sub("", text).rstrip("\n"))


def blanked(source: str) -> tuple[str, str]:
    """The code of an exercise with its solution taken out, and the solution; nothing of the kind elsewhere."""
    solutions = [textwrap.dedent(text).strip("\n") for _, text in SOLUTION.findall(source)]
    return SOLUTION.sub(lambda found: f"{found[1]}...  # your turn", source), "\n\n".join(solutions)


def _fence(code: str) -> list[str]:
    longest = max(map(len, re.findall(r"`{3,}", code)), default=2)
    return ["`" * (longest + 1) + "python", code.rstrip("\n"), "`" * (longest + 1), ""]


def _folded(title: str, code: str) -> list[str]:
    inside = textwrap.indent("\n".join(_fence(code)), "    ")
    return ["", f'??? quote "{title.replace(chr(34), chr(39))}"', "", inside, ""]


def _first(code: str) -> str:
    """What a folded cell is called: the first function or constant of it, else its first line that is no import."""
    named = re.search(r"^(?:def|class) (\w+)", code, re.MULTILINE) or re.search(r"^([A-Z]\w*) = ", code, re.MULTILINE)
    lines = [line.strip() for line in code.splitlines() if not re.match(r"\s*(#|from |import |$)", line)]
    return named.group(1) if named else (lines or [code])[0][:60]


def write(made: Page, folder: Path) -> list[str]:
    """Write the Markdown and the pictures below `folder`; gives the outputs for the hook."""
    images = folder / made.images
    images.mkdir(parents=True, exist_ok=True)
    for name, content in made.files.items():
        (images / name).write_bytes(content)
    head = parts.front(title=made.evidence.title, description=f"The notebook {made.evidence.slug}")
    (folder / f"{made.evidence.slug}.md").write_text(head + "\n".join(made.lines), encoding="utf-8")
    return made.outputs

"""What there is to show of each notebook: its executed copy or its source, its figures, its claims. Nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rlkit import paths
from rlkit.notebooks.outputs import claims_in
from rlkit.notebooks.parameters import tags

if TYPE_CHECKING:
    from nbformat import NotebookNode

TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
SMOKE = "smoke"
"""The preset that only says whether every cell runs: what it draws is no result."""


@dataclass(frozen=True)
class Picture:
    """A figure as a file."""

    name: str
    path: Path
    title: str
    """What the figure says at its top: the finding, or a question."""
    claims: tuple[str, ...] = ()
    """Ids of the claims that its title is computed from."""


@dataclass
class Evidence:
    """All of one notebook."""

    slug: str
    source: NotebookNode
    executed: NotebookNode | None = None
    """The newest complete run of these very cells, if there is one."""
    preset: str = ""
    """Of the executed copy: a preset, or "recorded"."""
    when: str = ""
    """Day of the executed copy."""
    pictures: dict[str, Picture] = field(default_factory=dict)
    """The figures that belong to the executed copy, in the order of the notebook; else the committed ones."""
    committed: dict[str, Picture] = field(default_factory=dict)
    """The figures of the recorded run, in the order of the notebook."""
    claims: dict[str, Any] = field(default_factory=dict)
    """The committed claims by id, in order."""

    @property
    def title(self) -> str:
        """The notebook's first heading."""
        found = re.search(r"^# (.+)$", self.source.cells[0].source, re.MULTILINE) if self.source.cells else None
        return found.group(1).strip() if found else self.slug

    @property
    def summary(self) -> str:
        """The first paragraph under the title that is no table, picture or line of links."""
        first = self.source.cells[0].source if self.source.cells else ""
        for block in re.split(r"\n\s*\n", first):
            text = " ".join(line for line in block.splitlines() if not line.startswith("#")).strip()
            if text and " · " not in text and not re.match(r"[|!<\[]|(?:\*\*)?Papers?\b|arXiv\b", text):
                return text
        return ""


def gather() -> dict[str, Evidence]:
    """All notebooks, in their order.

    Raises:
        ValueError: a claims.json is broken.
    """
    import nbformat

    from rlkit.notebooks import available

    return {slug: _evidence(slug, nbformat.read(path, as_version=4)) for slug, path in available().items()}


def _evidence(slug: str, source: NotebookNode) -> Evidence:
    document = claims_in(paths.committed(slug)) or {"claims": []}
    found = Evidence(slug, source, claims={claim["id"]: claim for claim in document["claims"]})
    order = dict(figure_calls(source, tuple(found.claims)))
    found.committed = pictures(paths.committed(slug), order)
    for path in _runs(slug):
        copy = _finished(path, source)
        if copy is not None:
            found.executed, found.preset = copy, path.parent.name
            found.when = datetime.fromtimestamp(path.stat().st_mtime).date().isoformat()
            break
    own = paths.build() / "figures" / found.preset / slug
    drawn = pictures(own, order) if found.executed and own.is_dir() else {}
    found.pictures = drawn or found.committed
    return found


def _runs(slug: str) -> list[Path]:
    """Executed copies, the newest first; those of `smoke` do not count."""
    copies = (paths.build() / "executed").glob(f"*/{slug}.ipynb")
    return sorted((c for c in copies if c.parent.name != SMOKE), key=lambda c: -c.stat().st_mtime)


def _finished(path: Path, source: NotebookNode) -> NotebookNode | None:
    """An executed copy, if it ran to its end without an error and its cells are those of the source."""
    import nbformat

    try:
        copy = nbformat.read(path, as_version=4)
    except (OSError, ValueError):
        return None
    own = [cell for cell in copy.cells if "injected-parameters" not in tags(cell)]
    code = [cell for cell in own if cell.cell_type == "code" and "skip-execution" not in tags(cell)]
    done = all(cell.execution_count is not None for cell in code)
    failed = any(output.output_type == "error" for cell in code for output in cell.outputs)
    same = [cell.source for cell in own] == [cell.source for cell in source.cells]
    return copy if done and same and not failed else None


def figure_calls(notebook: NotebookNode, claims: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The figures that the cells draw with `something.figure("name", ...)`, each with the claim ids inside the call."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield from cell_figures(cell.source, claims)


def cell_figures(source: str, claims: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The same for one cell; nothing where it is not Python."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return
    for call in nodes:
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "figure"):
            continue
        texts = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        if call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
            yield call.args[0].value, tuple(name for name in claims if name in texts)


def pictures(folder: Path, order: dict[str, tuple[str, ...]]) -> dict[str, Picture]:
    """The SVG files of a folder, in the order of the notebook; others after them."""
    files = {path.stem: path for path in sorted(folder.glob("*.svg"))}
    names = [*(name for name in order if name in files), *(name for name in files if name not in order)]
    return {name: Picture(name, files[name], svg_title(files[name]), order.get(name, ())) for name in names}


def svg_title(path: Path) -> str:
    """The title inside an SVG file; the file's name where it has none."""
    found = TITLE.search(path.read_text(encoding="utf-8")[:4000])
    text = Markup(found.group(1)).unescape().strip() if found else ""
    return text or path.stem.replace("_", " ")

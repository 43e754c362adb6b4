"""What a notebook must leave behind, whether it did, and how its verdicts compare with the committed ones."""

from __future__ import annotations

import ast
import json
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit import paths
from rlkit.files import write_all, write_atomic
from rlkit.notebooks.kernel import NotebookError

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from rlkit.claims import Change
    from rlkit.notebooks import Outcome

KINDS = (".svg", ".png")
CLAIMS = "claims.json"
Stamp = tuple[int, int, int]


def expected(slug: str, notebook: NotebookNode, output: Path) -> set[Path]:
    """The files that a run has to write: the figures that its cells name or that are committed, and the claims.

    Cells name a figure by a call such as `study.figure("accuracy", ...)`.
    """
    committed = {path.stem for path in paths.committed(slug).glob("*") if path.suffix in KINDS}
    wanted = {output / f"{name}{kind}" for name in committed | declared(notebook) for kind in KINDS}
    judged = (paths.committed(slug) / CLAIMS).is_file() or any(_calls(cell, "judge") for cell in _code(notebook))
    return wanted | ({output / CLAIMS} if judged else set())


def declared(notebook: NotebookNode) -> set[str]:
    """The names of the figures that the cells of a notebook draw: the first argument of each `.figure("name", ...)`."""
    first = (call.args[0] for cell in _code(notebook) for call in _calls(cell, "figure") if call.args)
    return {name.value for name in first if isinstance(name, ast.Constant) and isinstance(name.value, str)}


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _calls(cell: NotebookNode, method: str) -> list[ast.Call]:
    """The calls `something.method(...)` in a cell; none in a cell with notebook magics."""
    try:
        nodes = list(ast.walk(ast.parse(cell.source)))
    except SyntaxError:
        return []
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == method]


def stamps(folder: Path) -> dict[Path, Stamp]:
    """What tells a rewritten file from an old one: inode, time and size, since figures are replaced as a whole."""
    files = [path for path in folder.glob("*") if path.suffix in KINDS or path.name == CLAIMS]
    return {path: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path in files for stat in [path.stat()]}


def verify(output: Path, wanted: set[Path], before: Mapping[Path, Stamp]) -> None:
    """Compare with what was there before; the last part of the folder's path is the notebook's slug.

    Raises:
        NotebookError: the run wrote no figure, or not all that it should have.
    """
    after = stamps(output)
    written = {path for path, stamp in after.items() if before.get(path) != stamp}
    missing = sorted(path.name for path in wanted - written)
    if missing:
        raise NotebookError(
            f"the notebook ended without writing {', '.join(missing)} to {output}. A figure that is gone for good: "
            f"delete it from {paths.committed(output.name)} too"
        )
    if not any(path.suffix in KINDS for path in written):
        raise NotebookError(f"the notebook ended without writing a figure to {output}")


def same_bytes(output: Path, committed: Path) -> None:
    """Recorded data redrawn give the committed bytes; promised on Linux x86-64 only.

    Raises:
        NotebookError: some file differs.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return
    names = sorted(path.name for path in stamps(committed))
    differ = [name for name in names if (output / name).read_bytes() != (committed / name).read_bytes()]
    if differ:
        raise NotebookError(f"redrawn from recorded data, {', '.join(differ)} differ from those in {committed}")


def publish(made: Path, slug: str) -> None:
    """Put what a run has made in the place of the committed figures, claims and recorded data, and remove it there.

    Raises:
        OSError: the disk refuses; the committed figures and claims are as they were.
    """
    from rlkit.recorded import replace_folder

    final, data = paths.figures(slug), made / "recorded"
    write_all({final / path.name: path.read_bytes() for path in made.glob("*") if path.is_file()})
    if data.is_dir():
        replace_folder(paths.recorded(slug, write=True), {path.name: path.read_bytes() for path in data.iterdir()})
    shutil.rmtree(made)


def claims_in(folder: Path | None) -> dict[str, Any] | None:
    """The claims of a folder, or None without any.

    Raises:
        ValueError: the file is broken.
    """
    from rlkit.claims import read_claims

    return read_claims(folder / CLAIMS) if folder and (folder / CLAIMS).is_file() else None


def changes(committed: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[Change]:
    """Each claim's verdict, committed and new; a side without claims has none."""
    from rlkit.claims import compare_claims

    nothing: dict[str, Any] = {"claims": []}
    return compare_claims(committed or nothing, new or nothing)


def changed(outcome: Outcome) -> list[Change]:
    """The claims whose committed verdict is another one now; a claim that was not committed is new, not changed."""
    return [change for change in outcome.changes if change.committed != "none" and change.changed]


def exit_code(outcomes: Sequence[Outcome], check: bool) -> int:
    """0 well, 1 broken, 3 (of a check) a verdict changed."""
    if not all(outcome.ok for outcome in outcomes):
        return 1
    return 3 if check and any(map(changed, outcomes)) else 0


def write_summary(outcomes: Sequence[Outcome], code: int) -> Path:
    """Write `build/summary.json`: per notebook seconds, message, each verdict committed and new, and its drift.

    `drift` is the distance between the two estimates in units of half the committed interval's width.
    """
    path = paths.build() / "summary.json"
    content = {"exit": code, "notebooks": {outcome.slug: _summary(outcome) for outcome in outcomes}}
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def _summary(outcome: Outcome) -> dict[str, Any]:
    verdicts = [
        {
            "id": change.id,
            "committed": change.committed,
            "new": change.new,
            "changed": change in changed(outcome),
            "drift": change.drift,
        }
        for change in outcome.changes
    ]
    return {
        "ok": outcome.ok,
        "message": outcome.message,
        "seconds": round(outcome.seconds, 1),
        "preset": outcome.preset,
        "executed": outcome.executed.relative_to(paths.root()).as_posix() if outcome.executed else None,
        "verdicts": verdicts,
    }

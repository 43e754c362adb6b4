"""The API reference: which objects and files have a page. Their docstrings are read, nothing is imported for it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from rlkit.site import parts

PACKAGE = Path(__file__).resolve().parents[1]
SURFACE = {
    "Look": ("load", "catalog", "Step", "compare", "Comparison"),
    "Train": ("trainer", "RLVRTrainer", "Method", "Context"),
    "Compare": ("run", "arm", "Arm", "measure", "Study", "Claim"),
    "Check": ("check", "grade", "grade_batch"),
}
"""The public names in the order in which one needs them; those that are new come under "More"."""
LEFT_OUT = {"__main__", "_data", "templates", "site"}


def public() -> dict[str, str]:
    """The names of `import rlkit`, each with the place where it is defined: read from the package's first file."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    call = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "attach")
    lazily = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
    return {name: f"rlkit.{place}.{name}" for place, names in lazily["submod_attrs"].items() for name in names}


def modules() -> dict[str, list[str]]:
    """All files by the room they are in: `{"tasks": ["rlkit.tasks", "rlkit.tasks.base", ...]}`; single files as one."""
    rooms: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        steps = path.relative_to(PACKAGE).with_suffix("").parts
        if LEFT_OUT & set(steps):
            continue
        names = [step for step in steps if step != "__init__"]
        room = names[0] if len(steps) > 1 else "files"
        if names and not any(name.startswith("_") for name in names):
            rooms.setdefault(room, []).append(".".join(["rlkit", *names]))
    return rooms


def surface() -> str:
    """The page of the public names."""
    names = public()
    groups: Mapping[str, tuple[str, ...]] = SURFACE | {
        "More": tuple(name for name in names if not any(name in group for group in SURFACE.values()))
    }
    lines = [f"{parts.front(title='rlkit')}# `import rlkit`", "", "What one needs, small enough to remember.", ""]
    for title, group in groups.items():
        known = [name for name in group if name in names]
        lines += [f"## {title}", ""] if known else []
        for name in known:
            lines += [f"### `rlkit.{name}`", "", *_block(names[name], root=False), ""]
    return "\n".join(lines)


def room(name: str, members: list[str]) -> str:
    """The page of a room: its files one after the other."""
    title = "Single files" if name == "files" else f"rlkit.{name}"
    lines = [f"{parts.front(title=title)}# {title}", ""]
    for member in members:
        lines += [*_block(member, root=True), ""]
    return "\n".join(lines)


def _block(target: str, root: bool) -> list[str]:
    """What mkdocstrings replaces by the documentation."""
    heading = ["      heading_level: 2", "      show_root_heading: true"] if root else ["      show_root_heading: false"]
    level = ["      show_root_toc_entry: true"] if root else ["      heading_level: 4", "      show_root_toc_entry: false"]
    return [f"::: {target}", "    options:", *heading, *level]

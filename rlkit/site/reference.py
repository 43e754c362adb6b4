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
PLAIN = ("heading_level: 4", "show_root_heading: false", "show_root_toc_entry: false", "show_source: false")
LEFT_OUT = {"__main__", "_data", "templates", "site"}


def public() -> dict[str, str]:
    """The names of `import rlkit`, each with the place where it is defined: read from the packages' first files."""
    return {name: _defined(f"rlkit.{place}", name) for name, place in _lazily(PACKAGE).items()}


def _lazily(folder: Path) -> dict[str, str]:
    """The names that a package loads on first use, each with the file or room that has it."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "attach"]
    given = [ast.literal_eval(k.value) for call in calls for k in call.keywords if k.arg == "submod_attrs"]
    return {name: place for attrs in given for place, names in attrs.items() for name in names}


def _defined(place: str, name: str) -> str:
    """The full name of an object that `place` has, which may be a room that takes it from one of its files."""
    folder = PACKAGE.joinpath(*place.split(".")[1:])
    inside = _lazily(folder).get(name) if (folder / "__init__.py").is_file() else None
    return _defined(f"{place}.{inside}", name) if inside else f"{place}.{name}"


def modules() -> dict[str, list[str]]:
    """All files by the room they are in: `{"tasks": ["rlkit.tasks", "rlkit.tasks.base"], "stats": ["rlkit.stats"]}`."""
    rooms: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        steps = path.relative_to(PACKAGE).with_suffix("").parts
        if LEFT_OUT & set(steps):
            continue
        names = [step for step in steps if step != "__init__"]
        if names and not any(name.startswith("_") for name in names):
            rooms.setdefault(names[0], []).append(".".join(["rlkit", *names]))
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
            lines += [f"### `rlkit.{name}`", "", *_block(names[name], *PLAIN), ""]
    return "\n".join(lines)


def room(name: str, members: list[str]) -> str:
    """The page of a room: its files one after the other."""
    alone = len(members) == 1
    lines = [parts.front(title=f"rlkit.{name}"), *([] if alone else [f"# rlkit.{name}", ""])]
    for member in members:
        lines += [*_block(member, f"heading_level: {1 if alone else 2}", "show_root_heading: true"), ""]
    return "\n".join(lines)


def _block(target: str, *options: str) -> list[str]:
    """What mkdocstrings replaces by the documentation."""
    return [f"::: {target}", "    options:", *(f"      {option}" for option in options)]

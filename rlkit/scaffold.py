"""`rlkit new method NAME`: file, notebook and test of a method, which pass the project's checks as they are."""

from __future__ import annotations

import json
import keyword
import re
from importlib import resources
from pathlib import Path
from typing import Any

from rlkit import paths
from rlkit.method import catalog

TEMPLATES = {
    "method.py.txt": "rlkit/methods/{name}.py",
    "notebook.txt": "notebooks/{name}.ipynb",
    "test_method.py.txt": "tests/methods/test_{name}.py",
}
LONGEST = 30
"""Characters of a name: with more, the lines of the templates would have to be wrapped."""
CELL = re.compile(r"^# %%(?P<markdown> \[markdown\])?(?: tags=(?P<tags>\w+))?\n", re.MULTILINE)
"""A cell of the notebook's template starts with `# %%`; `# %% [markdown]` is text, `tags=` names its tag."""


def new_method(name: str, folder: Path | None = None) -> list[Path]:
    """Write the three files of a method that is called `name`.

    Args:
        name: lower-case Python identifier; also the slug of the notebook.
        folder: root of the checkout; default: the one that rlkit is imported from.

    Returns:
        The files that were written.

    Raises:
        ValueError: a name that is none or is taken, or no checkout to write into.
        FileExistsError: one of the files is there already; nothing is written then.

    """
    root = folder or paths.checkout()
    if root is None:
        raise ValueError(
            "rlkit runs from an installed wheel, so there is no folder of methods to add to. Clone the repository and "
            "install it with `pip install -e .`, or build a `rlkit.Method` in a notebook cell: that needs no file."
        )
    check_name(name)
    files = {root / place.format(name=name): fill(template, name) for template, place in TEMPLATES.items()}
    for path in files:
        if path.exists():
            raise FileExistsError(
                f"{path} is there already. Choose another name, or move it away; nothing was written."
            )
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                written.append(path)
                file.write(text)
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return written


def check_name(name: str) -> None:
    """Raise ValueError unless `name` can be a file, a method and a notebook, and is not taken."""
    if not _usable(name):
        better = re.sub(r"\W+", "_", name.strip().lower()).strip("_")[:LONGEST]
        hint = f"; for example {better!r}" if _usable(better) else ""
        raise ValueError(
            f"{name!r} cannot be a method's name: it is a file, so at most {LONGEST} lower-case letters, digits and _, "
            f"a letter first{hint}."
        )
    if name in catalog():
        raise ValueError(f"There is a method {name!r} already. Choose another name.")


def _usable(name: str) -> bool:
    return bool(re.fullmatch(rf"[a-z][a-z0-9_]{{0,{LONGEST - 1}}}", name)) and not keyword.iskeyword(name)


def fill(template: str, name: str) -> str:
    """The text of a template for a method."""
    text = (resources.files("rlkit") / "templates" / template).read_text(encoding="utf-8")
    title = name.replace("_", " ").capitalize()
    for mark, value in (("my_method", name), ("TITLE", title), ("CONSTANT", name.upper())):
        text = text.replace(mark, value)
    return notebook(text) if template == "notebook.txt" else text


def notebook(text: str) -> str:
    """A notebook's JSON from cells that are separated by `# %%` lines."""
    marks = list(CELL.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    cells = []
    for number, (mark, end) in enumerate(zip(marks, ends, strict=True), 1):
        source = text[mark.end() : end].strip("\n").splitlines(keepends=True)
        metadata: dict[str, Any] = {"tags": [mark["tags"]]} if mark["tags"] else {}
        cell: dict[str, Any] = {
            "cell_type": "markdown",
            "id": f"cell-{number:02}",
            "metadata": metadata,
            "source": source,
        }
        if not mark["markdown"]:
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append(dict(sorted(cell.items())))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"

"""A badge and a first cell for Google Colab, written into all notebooks from one constant.

While `REPOSITORY` is empty there is neither. Set it and run `python -m rlkit.notebooks.colab`; the lint then finds
every notebook that does not agree with it. The cell installs without constraints.txt, so that Colab's own torch stays
where rlkit can use it.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit.notebooks.parameters import TAG, tags

if TYPE_CHECKING:
    from nbformat import NotebookNode

REPOSITORY = ""
"""The repository's address, such as https://github.com/OWNER/NAME; "" while it has none."""
BRANCH = "main"
COLAB = "colab"
"""The cell's tag and id."""
BADGE = re.compile(r"\n\n\[Open in Colab\]\([^)\n]*\)(?=\n|$)")


def badge(file: str, repository: str) -> str:
    """The link that opens a notebook there: text, not a picture, so that reading a notebook fetches nothing."""
    place = repository.removesuffix("/").removesuffix(".git").removeprefix("https://github.com/")
    return f"[Open in Colab](https://colab.research.google.com/github/{place}/blob/{BRANCH}/notebooks/{file})"


def source(repository: str) -> str:
    """The cell: it installs rlkit on Colab and does nothing elsewhere."""
    return f"""import subprocess
import sys

if "google.colab" in sys.modules:  # elsewhere rlkit is there already
    address = "rlkit-lab @ git+{repository}"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", address], check=True)"""


def agreed(notebook: NotebookNode, file: str, repository: str | None = None) -> NotebookNode:
    """A copy with the badge under its title and the cell after its parameters, or without both.

    Args:
        notebook: any notebook.
        file: its path below `notebooks/`.
        repository: the address; the constant by default.
    """
    import nbformat

    address = REPOSITORY if repository is None else repository
    made = copy.deepcopy(notebook)
    made.cells = [cell for cell in made.cells if COLAB not in tags(cell)]
    title, _, rest = BADGE.sub("", made.cells[0].source).partition("\n")
    if not address:
        made.cells[0].source = f"{title}\n{rest}" if rest else title
        return made
    made.cells[0].source = f"{title}\n\n{badge(file, address)}\n{rest}".rstrip("\n")
    after = 1 + next(number for number, cell in enumerate(made.cells) if TAG in tags(cell))  # parameters come first
    made.cells.insert(after, nbformat.v4.new_code_cell(source(address), id=COLAB, metadata={"tags": [COLAB]}))
    return made


def write(path: Path, folder: Path) -> bool:
    """Make a notebook's file agree with the constant; whether it was changed."""
    import nbformat

    from rlkit.files import write_atomic

    notebook = nbformat.read(path, as_version=4)
    made = agreed(notebook, path.relative_to(folder).as_posix())
    if made == notebook:
        return False
    write_atomic(path, nbformat.writes(made, ensure_ascii=False) + "\n")
    return True


def main() -> None:
    """Make every notebook agree, and say which were changed."""
    from rlkit import notebooks, paths

    for path in notebooks.available().values():
        if write(path, paths.notebooks()):
            print(f"changed: {path}")


if __name__ == "__main__":
    main()

"""`rlkit wheelhouse DIR`: a folder from which machines without a network can install rlkit and all that it needs.

It fits machines of this kind: the same system, processor and Python version.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from rlkit import paths


def command(folder: Path, torch_index: str = "") -> list[str]:
    """The command that fills the folder: pip builds or downloads a wheel of rlkit and of every dependency."""
    checkout = paths.checkout()
    pins = ["--constraint", str(checkout / "constraints.txt")] if checkout else []
    index = ["--extra-index-url", torch_index] if torch_index else []
    what = str(checkout) if checkout else f"rlkit-lab=={version('rlkit-lab')}"
    return [sys.executable, "-m", "pip", "wheel", "--wheel-dir", str(folder), *pins, *index, what]


def recorded_index() -> str:
    """The index that this environment took torch from, as its set-up wrote it down; "" for pip's own."""
    try:
        return str(json.loads((Path(sys.prefix) / "rlkit-setup.json").read_text(encoding="utf-8"))["torch_index"])
    except (OSError, ValueError, KeyError):
        return ""


def fill(folder: Path, torch_index: str = "") -> int:
    """Fill the folder.

    Args:
        folder: made if it is not there; wheels that it has already are not fetched again.
        torch_index: an index beside pip's own, such as PyTorch's of CPU builds; default: the one that this
            environment took torch from.

    Returns:
        The folder's size in bytes.

    Raises:
        OSError: pip failed; its own message is above.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run([*command(folder, torch_index or recorded_index()), "--quiet"], check=False).returncode:
        raise OSError("pip could not collect everything; its message is above. The same command again goes on there.")
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def how_to_install(folder: Path) -> str:
    """What to type on the other machine."""
    return f"python -m pip install --no-index --find-links {folder} rlkit-lab"

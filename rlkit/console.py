"""What the commands share: errors in one line, short paths."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

LONGEST = 4000
"""Characters of an error: what was given may be a megabyte."""
SECRET_NAME = re.compile(
    r"(?i)(^|_)(passw(or)?ds?|passphrase|secrets?|credentials?|(api|access|private|secret)_?key)$"
    r"|^((.*_)?(hub|hf|access|auth|api|bearer)_?)?token$"
)
"""`token` and `hub_token` are one; `pad_token` is none, and `max_new_tokens` counts pieces of text."""
SECRET_VALUE = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bsk-(?=\S*\d)[A-Za-z0-9_-]{20,}|\b(gh[pousr]_|github_pat_|xox[abp]-|AKIA|wandb_v1_)\w{16,}"
)
HASH = re.compile(r"[0-9a-f]{40}")
"""A tracker's key, or the name of a commit."""


@contextlib.contextmanager
def said_plainly() -> Iterator[None]:
    """What went wrong in one line instead of a traceback."""
    try:
        yield
    except (ValueError, KeyError, OSError, LookupError, ModuleNotFoundError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        where = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        raise fail(f"{text}{where}") from None


def fail(message: str, code: int = 1) -> typer.Exit:
    """Say what went wrong; the result is to be raised."""
    typer.echo(f"error: {message[:LONGEST]}", err=True)
    return typer.Exit(code)


def short(path: Path) -> str:
    """A path as seen from the current folder, if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def looks_secret(name: str, value: Any) -> bool:
    """Whether a value given on the command line looks like a password or a key: results would keep it in plain text."""
    if HASH.fullmatch(str(value)) and not re.search("revision|commit|sha", name):
        return True
    return bool(SECRET_NAME.search(name) or SECRET_VALUE.search(str(value)))


def refuse_secret(name: str, value: Any) -> None:
    """Raise ValueError where a setting looks like a secret."""
    if looks_secret(name, value):
        raise ValueError(
            f"{name!r} looks like a secret, and runs keep their settings in plain text: put it into an environment "
            "variable, such as HF_TOKEN or WANDB_API_KEY."
        )

"""What the commands share: errors in one line, short paths."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

SECRET_NAME = re.compile(r"(?i)(^|_)(passw(or)?ds?|passphrase|secrets?|credentials?|token|(api|access|private)_?key)$")
"""`token` is one; `max_new_tokens` counts pieces of text."""
SECRET_VALUE = re.compile(r"\b(hf_|sk-|gh[pousr]_|github_pat_|xox[abp]-|AKIA)[A-Za-z0-9_-]{16,}")


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
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(code)


def short(path: Path) -> str:
    """A path as seen from the current folder, if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def looks_secret(name: str, value: Any) -> bool:
    """Whether a value given on the command line looks like a password or a key: results would keep it in plain text."""
    return bool(SECRET_NAME.search(name) or SECRET_VALUE.search(str(value)))

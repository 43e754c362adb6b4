"""What the commands share: errors in one line, short paths."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import typer


@contextlib.contextmanager
def said_plainly() -> Iterator[None]:
    """What went wrong in one line instead of a traceback."""
    try:
        yield
    except (ValueError, KeyError, OSError, LookupError, ModuleNotFoundError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise fail(str(text)) from None


def fail(message: str, code: int = 1) -> typer.Exit:
    """Say what went wrong; the result is to be raised."""
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(code)


def short(path: Path) -> str:
    """A path as seen from the current folder, if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

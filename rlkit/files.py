"""Files that are whole or not there, and what to say where the disk refuses."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

REMEDIES = {
    errno.ENOSPC: "Free some space there and start again.",
    errno.EFBIG: "Let this process write larger files (ulimit -f) and start again.",
    errno.EACCES: "Make it writable, or choose another folder.",
    errno.ENOTDIR: "A file is where a folder should be: move it away.",
    errno.EISDIR: "A folder is where a file should be: move it away.",
}
REMEDIES |= {code: REMEDIES[errno.EACCES] for code in (errno.EPERM, errno.EROFS)}
REMEDIES |= {errno.EEXIST: REMEDIES[errno.ENOTDIR]}
if hasattr(errno, "EDQUOT"):  # Windows has no quotas
    REMEDIES |= {errno.EDQUOT: REMEDIES[errno.ENOSPC]}


def not_written(path: Path, error: OSError) -> OSError:
    """The error of a path that could not be written: names the path, the cause, and what to do about it."""
    remedy = REMEDIES.get(error.errno or 0, "")
    return OSError(f"Cannot write {path}: {error.strerror or error}. {remedy}".rstrip())


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name in the same folder and rename it: it is whole, or as it was before.

    Raises:
        OSError: the disk refuses; the message names the path, the cause and the remedy.
    """
    write_all({path: content.encode("utf-8") if isinstance(content, str) else content})


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write several files; each appears whole, and none appears if any of them cannot be written.

    Raises:
        OSError: as for `write_atomic`.
    """
    ready: list[tuple[str, Path]] = []
    path = Path()
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
            ready.append((temporary, path))
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)  # mkstemp makes files that only their owner may read
        for temporary, path in ready:
            os.replace(temporary, path)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        for temporary, _ in ready:
            Path(temporary).unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """Raise OSError, as `write_atomic` would after hours of training, where a folder cannot be written to.

    Nothing is made: of a folder that is not there yet the nearest one above it is tried.
    """
    place = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise not_written(folder, error) from None

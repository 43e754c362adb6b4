"""Where things are: the only module that knows whether rlkit runs from a checkout or from an installed wheel.

Two places matter. The *source* is what rlkit came with and is only read: the checkout, or `rlkit/_data` in a wheel. The
*workspace* is where results go: `RLKIT_ROOT`, else the folder that `rlkit start` made, else the checkout, else the
current folder. In a checkout both are the same.
"""

from __future__ import annotations

import os
from pathlib import Path

MARKER = ".rlkit"
"""`rlkit start` leaves a file of this name in the folder it makes, so that notebooks below it find their workspace."""

_PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """The root of the git checkout that this package is imported from, or None in an installed wheel."""
    folder = _PACKAGE.parent
    return folder if (folder / "pyproject.toml").is_file() and (folder / "notebooks").is_dir() else None


def source() -> Path:
    """The folder with the notebooks, bases and recorded data that rlkit came with. Read only."""
    return checkout() or _PACKAGE / "_data"


def root() -> Path:
    """The workspace: everything that rlkit writes lies below it, the cache of runs excepted (see `home`)."""
    named = os.environ.get("RLKIT_ROOT")
    if named:
        return Path(named).resolve()
    return _started() or checkout() or Path.cwd()


def _started() -> Path | None:
    """The nearest folder at or above the current one that `rlkit start` made."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / MARKER).is_file()), None)


def notebooks() -> Path:
    """The folder of notebooks: the workspace's own, else those that rlkit came with."""
    own = root() / "notebooks"
    return own if own.is_dir() else source() / "notebooks"


def bases() -> Path:
    """The folder of tiny base models, one folder each."""
    return _data(source()) / "bases"


def recorded(slug: str, *, write: bool = False) -> Path:
    """The folder of a notebook's recorded data.

    Args:
        slug: the notebook.
        write: True for the workspace's own folder, there or not; else the data that rlkit came with stand in.
    """
    own = root() / "data" / "recorded" / slug
    return own if write or own.is_dir() else _data(source()) / "recorded" / slug


def figures(slug: str = "") -> Path:
    """The folder that the committed figures and `claims.json` of a notebook are written to."""
    return root() / "figures" / slug


def committed(slug: str) -> Path:
    """The folder of a notebook's committed figures and claims: the workspace's, else what rlkit came with."""
    own = figures(slug)
    return own if own.is_dir() else source() / "figures" / slug


def build() -> Path:
    """Whatever may be thrown away: executed notebooks, figures of presets other than `full`, cached runs."""
    return root() / "build"


def home() -> Path:
    """The store of finished runs: `RLKIT_HOME`, else `build/runs` in a workspace, else the platform's cache folder."""
    named = os.environ.get("RLKIT_HOME")
    if named:
        return Path(named).resolve()
    if os.environ.get("RLKIT_ROOT") or _started() or checkout():
        return build() / "runs"
    from platformdirs import user_cache_path

    return user_cache_path("rlkit-lab") / "runs"


def models() -> Path:
    """Pretrained models that rlkit fetched or made, for all checkouts: `RLKIT_MODELS`, else the platform's cache."""
    named = os.environ.get("RLKIT_MODELS")
    if named:
        return Path(named).resolve()
    from platformdirs import user_cache_path

    return user_cache_path("rlkit-lab") / "models"


def _data(base: Path) -> Path:
    """A checkout keeps its data in `data/`; a wheel puts the same folders straight into `_data/`."""
    return base / "data" if (base / "data").is_dir() else base

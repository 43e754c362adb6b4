"""Where metrics go beside the local files: `report_to`, off unless asked for, and never a question for a login.

trackio and tensorboard write to this machine. wandb without a key runs offline; `wandb sync` sends it later.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import netrc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

PACKAGES = {"tensorboard": ("tensorboard", "tensorboardX"), "trackio": ("trackio",), "wandb": ("wandb",)}
"""What `report_to` may name, and the packages of which one is needed."""
LOGS = "TENSORBOARD_LOGGING_DIR"
"""The variable by which transformers is told where tensorboard's files go."""


def named(report_to: Any) -> list[str]:
    """`report_to` as a list; empty for none."""
    given = [report_to] if isinstance(report_to, str) else list(report_to or ())
    return [name for name in given if name != "none"]


def check_tracking(report_to: Any) -> None:
    """Refuse trackers that are unknown or not installed, and keep wandb from asking for a key.

    Raises:
        ValueError: with the line to install it, or the names that are known.

    """
    for name in named(report_to):
        if name not in PACKAGES:
            raise ValueError(f"report_to={name!r} is not known here. Choose from {', '.join(PACKAGES)} or none.")
        if not any(importlib.util.find_spec(package) for package in PACKAGES[name]):
            raise ValueError(f"report_to={name!r} needs a package that is not installed: `pip install {name}`.")
        if name == "wandb" and not _has_key():
            os.environ["WANDB_MODE"] = "offline"
            logger.warning("wandb has no key here (WANDB_API_KEY): it runs offline. `wandb sync` sends the run later.")


def _has_key() -> bool:
    """Whether wandb would not ask for a key: the mode is set, or there is a key in the environment or in ~/.netrc."""
    if os.environ.get("WANDB_MODE") or os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("://")[-1].split("/")[0]
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        return netrc.netrc().authenticators(host) is not None
    return False


@contextlib.contextmanager
def tensorboard_in(folder: Path, report_to: Any) -> Iterator[None]:
    """Tensorboard's files go to `folder` where the run's own folder is a temporary one; no effect on other trackers."""
    if "tensorboard" not in named(report_to) or os.environ.get(LOGS):
        yield
        return
    os.environ[LOGS] = str(folder)
    try:
        yield
    finally:
        del os.environ[LOGS]

"""A real browser: the system's Chromium, driven by Playwright, which downloads none of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
REQUIRED = "RLKIT_BROWSER"
"""Set to "required", a missing browser is a failure and no skip."""


def _without(what: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{what}, and {REQUIRED}=required asks for the tests in a browser")
    pytest.skip(what)


def chromium() -> str:
    """The browser's path; RLKIT_CHROMIUM names one that is not on the PATH."""
    named = os.environ.get("RLKIT_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    return found or _without("no Chromium here (on Debian and Ubuntu: apt install chromium)")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The running browser."""
    path = chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _without("no Playwright here (python -m pip install 'rlkit-lab[browser]')")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=["--no-sandbox"] if root else [])
        yield running
        running.close()


@pytest.fixture
def screenshot() -> Any:
    """`screenshot(page, "name")` writes build/screenshots/name.png."""

    def take(page: Any, name: str, **options: Any) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", **options)

    return take

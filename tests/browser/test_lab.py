"""A notebook in JupyterLab, as a reader has it: open, Run All, look at a step and a figure, move a slider."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlkit.notebooks import available
from tests import sites

pytestmark = pytest.mark.slow
TOUR, OTHER = "tour", "median_baseline"
PRESET = re.compile(r"^preset = .*$", re.MULTILINE)
SECONDS = 300


@dataclass
class Lab:
    """A running JupyterLab."""

    address: str
    notebook: Path
    log: Path

    def api(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.address}/api/{path}", timeout=10) as answer:
            return json.load(answer)


def command(port: int) -> list[str]:
    """What `make lab` runs, with this Python; its other line is the set-up."""
    arguments = (
        f"--no-browser --port={port} --ServerApp.ip=127.0.0.1 --IdentityProvider.token= "
        "--ServerApp.disable_check_xsrf=True"
    )
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments += " --allow-root"
    if shutil.which("make") is None:
        return [sys.executable, "-m", "jupyterlab", "notebooks", *arguments.split()]
    recipe = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "lab", f"ARGS={arguments}"],
        cwd=sites.ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()[-1].split()  # fmt: skip
    assert "jupyterlab" in recipe and "notebooks" in recipe, recipe
    return [sys.executable, *recipe[1:]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab on a copy of the notebooks, as `rlkit start` makes it, at the preset `smoke`."""
    base = tmp_path_factory.mktemp("lab")
    environment = own_settings(base)
    subprocess.run(
        [sys.executable, "-m", "rlkit", "start", str(base / "mine")], env=environment, check=True, capture_output=True
    )
    slug = TOUR if TOUR in available() else OTHER
    notebook = base / "mine" / "notebooks" / available()[slug].name
    at_smoke(notebook)
    port = free_port()
    log = base / "lab.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command(port), cwd=base / "mine", env=environment, stdout=out, stderr=out)
    running = Lab(f"http://127.0.0.1:{port}", notebook, log)
    try:
        wait_until_up(running, process)
        yield running
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def own_settings(base: Path) -> dict[str, str]:
    """The environment of a JupyterLab that has nothing of the user's, and writes below `base` only."""
    folder = base / "settings" / "@jupyterlab"
    settings = {
        # Lab takes cells out of the page that are out of sight; here all of them are looked at.
        folder / "notebook-extension" / "tracker.jupyterlab-settings": {"windowingMode": "none"},
        folder / "apputils-extension" / "notification.jupyterlab-settings": {
            "fetchNews": "false",
            "checkForUpdates": False,
        },
    }
    for path, values in settings.items():
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    own = {"RLKIT_HOME": str(base / "runs"), "PYTHONPATH": sites.path_for_children()}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(base / "settings"), "JUPYTER_CONFIG_DIR": str(base / "config")}
    own |= {"JUPYTERLAB_WORKSPACES_DIR": str(base / "spaces"), "JUPYTER_RUNTIME_DIR": str(base / "runtime")}
    own |= {"IPYTHONDIR": str(base / "ipython"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own}


def at_smoke(notebook: Path) -> None:
    """Set the preset in the cell of the parameters, as a reader would."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    cell = next(c for c in content["cells"] if "parameters" in c["metadata"].get("tags", []))
    source = PRESET.sub('preset = "smoke"', "".join(cell["source"]))
    assert 'preset = "smoke"' in source
    cell["source"] = source.splitlines(keepends=True)
    notebook.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def wait_until_up(lab: Lab, process: subprocess.Popen) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        try:
            lab.api("status")
            return
        except OSError:
            assert process.poll() is None, lab.log.read_text(encoding="utf-8", errors="replace")
            time.sleep(0.5)
    pytest.fail(f"JupyterLab did not start:\n{lab.log.read_text(encoding='utf-8', errors='replace')}")


def test_a_notebook_runs_and_answers(browser, lab, screenshot) -> None:
    """One test, because what is looked at takes a minute to run: every step is a function below."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * SECONDS)  # a busy machine is slow, not broken
    page = context.new_page()
    run_all(lab, page)
    screenshot(page, "lab-after-run-all")
    finished_without_an_error(lab, page)
    step_is_shown_token_by_token(page, screenshot)
    figure_is_drawn(page, screenshot)
    slider_changes_the_picture(page, screenshot)
    context.close()


def run_all(lab: Lab, opened: Any) -> None:
    """Open the notebook and press Run All Cells."""
    opened.goto(f"{lab.address}/lab/tree/{lab.notebook.name}")
    opened.locator(".jp-Notebook .jp-Cell").first.wait_for()
    wait_for_kernel(lab, opened)
    opened.get_by_role("menuitem", name="Run", exact=True).click()
    opened.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    wait_until_done(lab, opened)


def states(lab: Lab) -> list[str]:
    """What the kernels of the open notebooks are doing."""
    return [session["kernel"]["execution_state"] for session in lab.api("sessions")]


def wait_for_kernel(lab: Lab, page: Any) -> None:
    """Until the notebook has a kernel: Run All before that asks which one."""
    end = time.monotonic() + 90
    while states(lab) != ["idle"] or page.get_by_text("No Kernel").count():
        assert time.monotonic() < end, f"no kernel: {states(lab)}"
        page.wait_for_timeout(500)
    page.wait_for_timeout(1000)


def wait_until_done(lab: Lab, page: Any) -> None:
    """Until no cell is running or waiting and the kernel is idle."""
    end = time.monotonic() + SECONDS
    page.wait_for_timeout(2000)
    while page.locator(".jp-InputPrompt", has_text="[*]").count() or states(lab) != ["idle"]:
        assert time.monotonic() < end, f"the notebook was not done after {SECONDS} s"
        page.wait_for_timeout(1000)


def finished_without_an_error(lab: Lab, page: Any) -> None:
    assert page.locator('[data-mime-type="application/vnd.jupyter.error"]').count() == 0
    assert page.locator(".jp-Dialog").count() == 0
    page.keyboard.press("Control+s")
    page.wait_for_timeout(2000)
    cells = json.loads(lab.notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]
    assert all(cell["execution_count"] for cell in code)
    assert [o["evalue"] for cell in code for o in cell["outputs"] if o["output_type"] == "error"] == []


def step_is_shown_token_by_token(page: Any, screenshot: Any) -> None:
    step = page.locator('.jp-OutputArea [id^="rlk"]').first
    step.scroll_into_view_if_needed()
    assert step.is_visible() and step.bounding_box()["height"] > 100
    assert step.locator("fieldset").first.evaluate("e => getComputedStyle(e).borderRadius") == "6px"
    screenshot(page, "lab-slow-motion")


def figure_is_drawn(page: Any, screenshot: Any) -> None:
    figure = page.locator('.jp-OutputArea img[src^="data:image/png"]').first
    figure.scroll_into_view_if_needed()
    assert figure.is_visible() and figure.evaluate("e => e.naturalWidth") > 200
    screenshot(page, "lab-figure")


def slider_changes_the_picture(page: Any, screenshot: Any) -> None:
    slider = page.locator(".widget-hslider").first
    slider.scroll_into_view_if_needed()
    picture = page.locator(".widget-vbox").filter(has=page.locator(".widget-hslider")).locator("img").first
    assert picture.is_visible()
    before, said = content(picture), slider.locator(".widget-readout").inner_text()
    screenshot(page, "lab-slider-before")
    slider.locator(".noUi-handle").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "([image, old]) => image.src !== old", arg=[picture.element_handle(), before[0]], timeout=20_000
    )
    page.wait_for_timeout(500)
    screenshot(page, "lab-slider-after")
    assert slider.locator(".widget-readout").inner_text() != said
    assert content(picture)[1] != before[1]


def content(picture: Any) -> tuple[str, str]:
    """The address of a picture and its bytes, as text."""
    return picture.evaluate(
        """async image => [image.src, [...new Uint8Array(await (await fetch(image.src)).arrayBuffer())].join()]"""
    )

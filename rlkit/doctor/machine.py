"""`rlkit doctor --machine`: can this computer run what it will be asked to run?"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from rlkit.doctor.checks import Check, Report

GIB = 2**30


def inspect() -> Report:
    """All checks; one that fails by itself is red and says why."""
    checks: list[Check] = []
    for name, look in LOOKS.items():
        try:
            checks += look()
        except Exception as error:  # a broken library may fail in any way, and the other checks are still worth having
            checks.append(Check(name, "red", f"{type(error).__name__}: {error}", "reinstall with constraints.txt"))
    return Report(checks)


def _python() -> Iterator[Check]:
    found = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < (3, 11) or sys.version_info >= (3, 14):
        yield Check("python", "red", found, "Python 3.11, 3.12 or 3.13")
    else:
        yield Check("python", "green", found)


def _libraries() -> Iterator[Check]:
    """Whether the installed versions are in the ranges that this package asks for."""
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in metadata.requires("rlkit-lab") or []]
    except metadata.PackageNotFoundError:
        yield Check("libraries", "skipped", "rlkit-lab is not installed, so its version ranges are not known here")
        return
    wrong = []
    for need in wanted:
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            have = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            have = "none"
        if have == "none" or not need.specifier.contains(have, prereleases=True):
            wrong.append(f"{need.name} {have} (wanted {need.specifier})")
    if wrong:
        yield Check("libraries", "red", f"{len(wrong)} do not fit", "pip install -c constraints.txt rlkit-lab", wrong)
    else:
        yield Check("libraries", "green", f"all {len(wanted)} requirements are met")


def _versions() -> Iterator[Check]:
    """Whether TRL and transformers are releases that the seams were tested with."""
    from rlkit import versions

    found = versions.complaints()
    tested = ", ".join(f"{name} {span}" for name, span in versions.TESTED.items())
    if found:
        yield Check("versions", "yellow", "; ".join(found), "pip install -c constraints.txt rlkit-lab")
    else:
        yield Check("versions", "green", f"tested: {tested}")


def _memory() -> Iterator[Check]:
    import psutil

    memory = psutil.virtual_memory()
    found = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB are free"
    if memory.available < 2 * GIB:
        yield Check("memory", "red", found, "close other programs: a run takes about 1 GiB a worker")
    else:
        yield Check("memory", "green", found)


def _threads() -> Iterator[Check]:
    import psutil
    import torch

    cores, used = psutil.cpu_count() or 1, psutil.cpu_percent(interval=0.5) / 100
    told = os.environ.get("OMP_NUM_THREADS", "not set")
    found = f"{cores} cores, {used:.0%} busy; torch uses {torch.get_num_threads()} threads, OMP_NUM_THREADS is {told}"
    if used > 0.8:
        fix = "let other work finish, or set OMP_NUM_THREADS=1: threads that wait for each other are 10 times slower"
        yield Check("threads", "yellow", found, fix)
    else:
        yield Check("threads", "green", found)


def _write() -> Iterator[Check]:
    from rlkit import paths

    for what, folder in (("runs", paths.home()), ("results", paths.build())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            fix = (
                "set RLKIT_HOME to a folder that you may write to" if what == "runs" else "work in a folder of your own"
            )
            yield Check(what, "red", f"{folder} cannot be written to: {error.strerror}", fix)
        else:
            free = shutil.disk_usage(folder).free / GIB
            full = free < 1
            yield Check(what, "red" if full else "green", f"{folder}, {free:.0f} GiB free", "make room" if full else "")


def _grading() -> Iterator[Check]:
    from rlkit.grading.grader import grade

    started = time.perf_counter()
    right = grade(r"\boxed{\frac{\sqrt2}{2}}", r"\frac{1}{\sqrt{2}}", seconds=10)
    seconds = time.perf_counter() - started
    found = f"a formula is graded in a worker process after {seconds:.1f} s"
    yield Check("grading", "green", found) if right == 1 else Check("grading", "red", "a right formula is graded wrong")


def _step() -> Iterator[Check]:
    from transformers import PrinterCallback

    from rlkit.models import base_names
    from rlkit.trainers.factory import trainer

    if "chain" not in base_names():
        yield Check("step", "red", "the tiny base 'chain' is not there", "rlkit build-bases chain")
        return
    with tempfile.TemporaryDirectory() as folder:
        built = trainer("grpo", preset="smoke", max_steps=3, output_dir=folder)
        built.remove_callback(PrinterCallback)
        built.train()
    seconds = [entry["step_time"] for entry in built.state.log_history if "step_time" in entry]
    found = f"one step of the preset smoke takes {min(seconds):.2f} s"
    slow = min(seconds) > 5
    yield Check(
        "step", "red" if slow else "green", found, "set OMP_NUM_THREADS=1 and let other work finish" if slow else ""
    )


def _gpu() -> Iterator[Check]:
    import torch

    if not torch.cuda.is_available():
        if shutil.which("nvidia-smi"):
            fix = "install a CUDA build of torch: https://pytorch.org/get-started/locally"
            yield Check("gpu", "red", "there is an NVIDIA driver, but torch cannot use it", fix)
        else:
            yield Check("gpu", "green", "none; smoke, tiny and full need none")
        return
    properties = torch.cuda.get_device_properties(0)
    found = f"{properties.name}, {properties.total_memory / GIB:.0f} GiB, bf16 {torch.cuda.is_bf16_supported()}"
    small = properties.total_memory < 7.5 * GIB
    yield Check("gpu", "yellow" if small else "green", found, "the preset gpu wants 8 GiB or more" if small else "")


def _bitsandbytes() -> Iterator[Check]:
    import torch
    from bitsandbytes import functional

    device = "cuda" if torch.cuda.is_available() else "cpu"
    weights = torch.linspace(-1, 1, 64 * 64, device=device).reshape(64, 64)
    packed, state = functional.quantize_4bit(weights, quant_type="nf4")
    error = float((functional.dequantize_4bit(packed, state) - weights).abs().max())
    if error < 0.2:
        yield Check("4-bit", "green", f"bitsandbytes quantizes on {device}, largest error {error:.2f}")
    else:
        yield Check("4-bit", "red", f"bitsandbytes is off by {error:.2f} on {device}", "reinstall bitsandbytes")


LOOKS: dict[str, Callable[[], Iterator[Check]]] = {
    "python": _python,
    "libraries": _libraries,
    "versions": _versions,
    "memory": _memory,
    "threads": _threads,
    "write": _write,
    "gpu": _gpu,
    "4-bit": _bitsandbytes,
    "grading": _grading,
    "step": _step,
}

"""The machine class: what two machines must share for float arithmetic to come out the same to the last bit."""

from __future__ import annotations

import platform
from pathlib import Path


def machine_class() -> dict[str, str]:
    """Operating system, architecture, CPU vendor, torch's CPU capability (such as AVX512) and torch's version."""
    import torch

    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "vendor": _vendor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__.split("+")[0],  # the local part (+cpu) names the same code on a CPU
    }


def _vendor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("vendor_id"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"

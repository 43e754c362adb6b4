"""`rlkit doctor --preset gpu --model ...`: does a training step fit, and how long does it take?"""

from __future__ import annotations

from rlkit.doctor.checks import Check
from rlkit.doctor.memory import GB, Load, estimate, smaller
from rlkit.doctor.shapes import shape_of
from rlkit.method import get_method
from rlkit.presets import get_preset
from rlkit.settings import resolve
from rlkit.tasks.base import get_task

CLOSE = 0.9
"""A share of the memory from which on an estimate is too close to call."""


def cost(
    preset: str, model: str | None = None, method: str = "grpo", teacher: str | None = None, memory: float = 0.0
) -> list[Check]:
    """What one step of a preset needs.

    Args:
        preset: its settings count.
        model: instead of the preset's.
        method: whose group size and batch count.
        teacher: for distillation.
        memory: GB that there are; 0 for those of this machine's GPU, or of the machine without one.

    Raises:
        ValueError: unknown preset or method, or a model of a kind that cannot be worked out.
        OSError: a model whose config cannot be had.
    """
    dial = get_preset(preset)
    load = Load.of(resolve(get_method(method), dial, get_task(dial.task).config, {}))
    name = model or dial.model
    taught = None if teacher is None else shape_of(teacher)
    needs = estimate(shape_of(name), load, taught)
    limit = (memory or here()) * GB
    state = "red" if needs.peak > limit else "yellow" if needs.peak > CLOSE * limit else "green"
    fix = "" if state == "green" else smaller(name, load, CLOSE * limit, taught) or "a smaller model"
    parts = [Check(f"memory, {when}", "green", f"{part} {size / GB:.3f} GB") for when, part, size in needs.rows()]
    asked = f"{name}, {method}, {load.rows} completions of {load.completion} tokens, {load.micro_batch} at a time"
    seconds = " + ".join(f"{part} {value:.1f} s" for part, value in needs.seconds.items())
    about = "by roofline, on an RTX 4090" if dial.gpu else "for a GPU: a CPU takes far longer"
    return [
        *parts,
        Check("memory", state, f"peak {needs.peak / GB:.2f} GB of {limit / GB:.1f} by estimate: {asked}", fix),
        Check("time", "green", f"a step about {seconds} ({about})"),
    ]


def here() -> float:
    """GB of this machine's first GPU, or of its memory without one."""
    import torch

    if torch.cuda.is_available():
        return float(torch.cuda.get_device_properties(0).total_memory / GB)
    import psutil  # type: ignore[import-untyped]

    return float(psutil.virtual_memory().total / GB)

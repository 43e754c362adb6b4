"""Time and memory of a training step over model size, group size and completion length: stock TRL, rlkit, by hand.

Three processes take steps in turn. Models have random weights in the shape of the tiny bases and never end a
completion; the reward tells all rollouts apart. So the three do the same work at every step, and how much is what the
point says: one axis at a time varies around the middle point.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import step
from benchmarks.readme import Report, about
from benchmarks.turns import CPU, WALL, WARM_UP, Quartiles, Ran, Side, in_turn, shown

PROMPTS, LEARNING_RATE, ROWS = 8, 1e-4, 256
NAMES = ("stock TRL", "rlkit", "by hand")
AXES: dict[str, tuple[int, ...]] = {
    "width": (32, 64, 112, 184, 280),
    "group": (2, 4, 8, 16, 32),
    "tokens": (8, 16, 32, 64, 128),
}
LABELS = {"width": "parameters", "group": "group size G", "tokens": "completion length"}


@dataclass(frozen=True)
class Point:
    """One row of the table."""

    width: int = 64
    group: int = 8
    tokens: int = 32
    parameters: int = 0

    def at(self, axis: str) -> int:
        """Where it stands on an axis; size is counted in parameters."""
        return int(getattr(self, "parameters" if axis == "width" else axis))


@dataclass(frozen=True)
class Found:
    """What was measured there."""

    point: Point
    ran: list[Ran]

    def memory(self, other: int) -> float | None:
        """Peak memory of rlkit as a multiple of another side's; None where it could not be read."""
        return self.ran[1].memory / self.ran[other].memory if self.ran[other].memory > 0 else None


def save_model(width: int, folder: Path) -> int:
    """Write a model that never ends a completion, and its tokenizer; gives the number of parameters.

    The first hidden number is the same everywhere: no layer adds to it, and all embeddings have 1 there but those of
    the end and padding tokens, which have -1000 and so, as the head is tied, a logit far below all others.
    """
    import torch

    from rlkit.bases import architecture, get_recipe, tokenizer

    recipe = dataclasses.replace(get_recipe("chain"), width=width, context=256)
    words = tokenizer(recipe.characters)
    torch.manual_seed(0)
    model = architecture(recipe, words)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0
        model.model.embed_tokens.weight[:, 0] = 1
        model.model.embed_tokens.weight[[words.eos_token_id, words.pad_token_id], 0] = -1000
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return int(model.num_parameters())


def case_of(point: Point, folder: str) -> step.Case:
    """The point as `step.build` takes it."""
    size = {"prompts_per_step": PROMPTS, "num_generations": point.group, "max_completion_length": point.tokens}
    fixed = {"learning_rate": LEARNING_RATE, "train_size": ROWS, "shuffle_dataset": False}
    return step.Case("", "spread", model=folder, settings={**size, **fixed})


def by_hand(point: Point, folder: str) -> Iterator[dict[str, float]]:
    """The same steps in `plain.py`."""
    from benchmarks import plain
    from rlkit.models import load_model
    from rlkit.tasks.base import get_task

    model, tokenizer = load_model(folder)
    case = case_of(point, folder)
    rows = list(get_task(case.task).dataset("train", ROWS))
    size = {"prompts": PROMPTS, "group": point.group, "tokens": point.tokens}
    return plain.train(model, tokenizer, rows, case.function, **size, learning_rate=LEARNING_RATE)


def measure(point: Point, steps: int) -> Found:
    """All three at one point."""
    with tempfile.TemporaryDirectory() as folder:
        point = dataclasses.replace(point, parameters=save_model(point.width, Path(folder)))
        sides = step.sides(case_of(point, folder), steps, step.build)
        sides.append(Side(by_hand, (point, folder)))
        return Found(point, in_turn(sides, steps))


def points() -> list[Point]:
    """The middle, and each axis around it."""
    return list(dict.fromkeys([Point(), *(Point(**{axis: at}) for axis, ats in AXES.items() for at in ats)]))


def exponent(axis: str, found: Sequence[Found], side: int, clock: int = CPU) -> tuple[float, float, float]:
    """Slope of log time against log position on an axis, and its 95 % interval over the points."""
    import numpy as np
    from scipy import stats

    line = [one for one in found if all(getattr(one.point, a) == getattr(Point(), a) for a in AXES if a != axis)]
    x, y = (np.log(v) for v in ([one.point.at(axis) for one in line], [one.ran[side].median(clock) for one in line]))
    fit = stats.linregress(x, y)
    margin = float(stats.t.ppf(0.975, len(line) - 2) * fit.stderr)
    return float(fit.slope - margin), float(fit.slope), float(fit.slope + margin)


def row(one: Found) -> list[str]:
    """A line of the first table."""
    point, (stock, ours, hand) = one.point, one.ran
    drawn = PROMPTS * point.group * point.tokens
    memory = [one.memory(other) for other in (0, 2)]
    return [
        f"{point.parameters / 1e6:.2f} M",
        str(point.group),
        str(point.tokens),
        *(f"{1000 * side.median(CPU):.0f}" for side in one.ran),
        *(f"{drawn / side.median(WALL):,.0f}" for side in one.ran),
        shown(ours.over(stock, CPU), 2),
        shown(ours.over(hand, CPU), 2),
        shown(stock.over(hand, CPU), 2),
        *("not measured" if ratio is None else f"{ratio:.2f}" for ratio in memory),
    ]


def summary(middle: Found) -> list[tuple[str, str]]:
    """The middle point in one look."""
    stock, ours, hand = middle.ran

    def both(clock: int) -> list[Quartiles]:
        return [ours.over(other, clock) for other in (stock, hand)]

    (cpu, cpu_hand), (wall, wall_hand) = both(CPU), both(WALL)
    where = f"{middle.point.parameters / 1e6:.2f} M parameters, {PROMPTS} x {middle.point.group} rollouts of "
    where += f"{middle.point.tokens} tokens"
    lines = [
        (f"CPU time of a step, all rows trained ({where}), to stock TRL's", shown(cpu, 2)),
        ("the same, to a loop written by hand", shown(cpu_hand, 2)),
        ("the same of stock TRL, to a loop written by hand", shown(stock.over(hand, CPU), 2)),
        ("wall time of the same step, to stock TRL's; to the loop's", f"{shown(wall, 2)}; {shown(wall_hand, 2)}"),
    ]
    memory = [middle.memory(other) for other in (0, 2)]
    if None not in memory:
        lines.append(("peak memory of the same, to stock TRL's; to the loop's", "; ".join(f"{m:.2f}" for m in memory)))
    return lines


def report(quick: bool) -> Report:
    """Measure every point; quickly, the ends of each axis and the middle."""
    steps = 4 if quick else 20
    chosen = points()
    if quick:
        ends = {at for axis in AXES.values() for at in (axis[0], axis[-1])}
        chosen = [p for p in chosen if p == Point() or {p.width, p.group, p.tokens} & ends]
    found = [measure(point, steps) for point in chosen]
    columns = ["parameters", "G", "tokens", *(f"{name}, CPU ms" for name in NAMES)]
    columns += [*(f"{name}, tokens/s" for name in NAMES)]
    columns += ["rlkit to TRL", "rlkit to by hand", "TRL to by hand", "memory to TRL", "memory to by hand"]
    grid = step.markdown(columns, [row(one) for one in found])
    slopes = [
        [f"time ~ ({LABELS[axis]})^", *(shown(exponent(axis, found, side), 2) for side in range(len(NAMES)))]
        for axis in AXES
    ]
    apart = max(side.apart(one.ran[0]) for one in found for side in one.ran[1:])
    how = f"{PROMPTS} prompts a step, {steps} steps after {WARM_UP} to warm up; ratios of CPU time; tokens/s on the "
    how += f"wall clock; {about()}. Loss and grad_norm of the three differ by at most {apart:.0e} over all steps."
    return Report(f"{grid}\n\n{step.markdown(['exponent', *NAMES], slopes)}\n\n{how}", summary(found[0]))

"""What a step of every method costs, as a multiple of its parent's and of plain `grpo` (or `opd`, where it distils).

All trainers of a family live in one process and take steps in turn. Learning rate 0, the same prompts and the same
random state at every step: those that draw as `grpo` draws have the same rollouts. Each draws 64 a step: a method that
asks for more a prompt gets fewer prompts (7 x 9 = 63). CPU seconds, one thread.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.readme import Report, about
from benchmarks.step import markdown
from benchmarks.turns import CPU, WARM_UP, Ran, Side, in_turn, shown

ROOTS = {"rlvr": "grpo", "distill": "opd"}
GROUP, ROLLOUTS, TRAIN_SIZE, NOISE = 8, 64, 256, 0.05


def build(name: str, steps: int) -> Any:
    """A trainer of preset tiny that draws 64 rollouts a step."""
    import rlkit
    from rlkit.presets import get_preset
    from rlkit.settings import resolve

    method = rlkit.catalog()[name]
    given: dict[str, Any] = {"max_steps": steps, "learning_rate": 0.0, "train_size": TRAIN_SIZE}
    if method.trainer == "distill":
        given |= {"teacher": noisy_base()} if method.teacher == "model" else {}
        given |= {"template": "{prompt}#"} if "template" in method.options else {}  # the base knows no letters
    asked = resolve(method, get_preset("tiny"), {}, {}).get("num_generations", GROUP)
    if asked != GROUP:
        given["prompts_per_step"] = ROLLOUTS // asked
    return rlkit.trainer(name, preset="tiny", **given)


def noisy_base() -> Any:
    """A teacher: the base with a little noise, so that it says other things."""
    import torch

    from rlkit.models import load_model

    model, _ = load_model("chain")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(NOISE * torch.randn(weights.shape, generator=generator))
    return model


def families() -> dict[str, list[str]]:
    """Root to the methods of its family, the root first."""
    import rlkit

    kinds: dict[str, list[str]] = {root: [root] for root in ROOTS.values()}
    for method in rlkit.catalog():
        if method.name not in kinds:
            kinds[ROOTS[method.trainer]].append(method.name)
    return kinds


def drawn(ran: Ran) -> float:
    """Completion tokens that a step draws."""
    totals = [line["generated_tokens"] for line in ran.log]
    return statistics.median(b - a for a, b in zip(totals[WARM_UP - 1 :], totals[WARM_UP:], strict=False))


def rows(root: str, names: list[str], steps: int) -> list[tuple[float, list[str]]]:
    """(cost, line of the table) of each method."""
    import rlkit

    sides = [Side(build, (name, steps + WARM_UP)) for name in names]
    ran = dict(zip(names, in_turn(sides, steps, threads=True), strict=True))
    found = []
    for name, mine in ran.items():
        parent = rlkit.catalog()[name].parent
        to_root = mine.over(ran[root], CPU)
        left_out = statistics.mean(line.get("rows_left_out", 0.0) for line in mine.log[WARM_UP:])
        line = [
            f"`{name}`",
            "" if parent is None else f"`{parent}`",
            f"{1000 * mine.median(CPU):.0f}",
            "" if parent in (None, root) else shown(mine.over(ran[str(parent)], CPU), 2),
            "1" if name == root else shown(to_root, 2),
            f"{drawn(mine) / drawn(ran[root]):.2f}",
            "" if root == ROOTS["distill"] else f"{left_out:.0%}",
            f"{mine.built:.1f}",
        ]
        found.append((to_root[1], line))
    return sorted(found, key=lambda pair: pair[0])


def report(quick: bool) -> Report:
    """Measure every method of both families."""
    steps = 4 if quick else 20
    tables, summary = [], []
    for root, names in families().items():
        found = rows(root, names, steps)
        columns = ["method", "parent", "CPU ms a step", "to its parent", f"to `{root}`"]
        columns += ["tokens drawn, to the root's", "rows left out", "CPU s to build"]
        tables.append(markdown(columns, [line for _, line in found]))
        names, costs = [line[0] for _, line in found], [cost for cost, _ in found]
        middle = statistics.median(costs)
        text = f"{middle:.2f} in the median of {len(costs)}; dearest: {names[-1]}, {costs[-1]:.2f}"
        summary.append((f"a step of a method, to `{root}`'s", text))
    how = f"Preset tiny, 64 rollouts a step, {steps} steps after {WARM_UP} to warm up; {about()}."
    return Report("\n\n".join([*tables, how]), summary)

"""The words and numbers of a step and of a comparison, for HTML and terminal alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlkit.steps.marks import ON_DEMAND, QUANTITIES, Scale, count, number, readable, scale

if TYPE_CHECKING:
    from rlkit.steps.compare import Comparison
    from rlkit.steps.step import Step, StepRow

STATUS = {"trained": "✓ trained", "out": "✂ taken out", "still": "○ no gradient"}
BRACKETS = "Advantages side by side. In brackets: not trained. Empty: the method does not use the rollout."
COSINE = "Cosine between the gradients: 1 is the same direction, 0 unrelated, -1 the opposite."


def status(row: StepRow) -> str:
    """`out` (taken out by the method), `still` (counted, no gradient) or `trained`."""
    return "trained" if row.counted and row.trained else "still" if row.counted else "out"


def headline(step: Step) -> str:
    """What a step is, in a sentence."""
    groups = len({row.group for row in step.rows})
    states = [status(row) for row in step.rows]
    parts = [f"{states.count('trained')} trained"]
    parts += [f"{states.count('out')} taken out by the method"] if "out" in states else []
    idle = [row for row in step.rows if status(row) == "still"]
    why = " (advantage 0)" if all(row.advantage == 0 for row in idle) and step.trainer == "rlvr" else ""
    parts += [f"{len(idle)} without a gradient{why}"] if idle else []
    old = sum(bool(row.age) for row in step.rows)
    parts += [f"{old} replayed from earlier steps"] if old else []
    return f"{count(len(step.rows), 'rollout')} of {count(groups, 'prompt')}: {', '.join(parts)}."


def gold(rows: Sequence[StepRow]) -> str | None:
    """The right answer of a group, where its rows know it."""
    value: Any = rows[0].extras.get("gold") if rows else None
    return None if value is None else readable(str(value), 80)


def heading(step: Step) -> str:
    """The method and where in its run the step is."""
    when = f"after {count(step.step, 'update')}" if step.step else "the first"
    return f"One training step of {readable(step.method, 80)} in slow motion: {when} (seed {step.seed})"


def columns(step: Step) -> list[str]:
    """The numbers of a rollout that this step has something to say about."""
    return [
        *(["reward", "advantage"] if any(row.reward is not None for row in step.rows) else []),
        *(["gradient"] if any(row.grad_norm is not None for row in step.rows) else []),
        *(["age"] if any(row.age is not None for row in step.rows) else []),
    ]


def cell(row: StepRow, name: str) -> str:
    """A rollout's number in words: `reward`, `advantage`, `gradient` or `age`."""
    if name == "reward":
        parts = (
            [f"{readable(key, 40)}\N{NO-BREAK SPACE}{number(value)}" for key, value in row.rewards.items()]
            if len(row.rewards) > 1
            else []
        )
        return number(row.reward, none="not scored") + (f" ({', '.join(parts)})" if parts else "")
    if name == "age":
        return "fresh" if row.age is None else f"{count(row.age, 'step')} old"
    return number(row.advantage, sign=True) if name == "advantage" else number(row.grad_norm)


def numbers(row: StepRow, t: int) -> str:
    """What is known of a token, for the pointer that rests on it."""
    known = {name: row.values[name][t] for name in QUANTITIES if t < len(row.values.get(name, ()))}
    logp = known.get("logp")
    chance = [f"probability {number(math.exp(min(logp, 0.0)))}"] if logp is not None else []
    words = [f"{name} {number(value, none='unknown')}" for name, value in known.items() if name not in ON_DEMAND]
    return "; ".join([f"token {t + 1} of {len(row.tokens)}", *chance, *words])


def facts(step: Step) -> tuple[str, list[tuple[str, str]]]:
    """The loss and the gradient in a sentence, and all settings and metrics as pairs."""
    first = {"loss": "loss", "grad_norm": "gradient norm", "generated_tokens": "generated tokens"}
    main = [f"{words} {number(step.metrics[key])}" for key, words in first.items() if key in step.metrics]
    rest = [(readable(name, 80), readable(str(value), 120)) for name, value in step.options.items()]
    rest += [(readable(name, 80), number(value)) for name, value in step.metrics.items() if name not in first]
    return ("The whole step: " + ", ".join(main) + "." if main else ""), rest


def advantages(comparison: Comparison) -> Scale:
    """One scale for the advantages of all methods of a comparison."""
    return scale("advantage", [x for m in comparison.methods for x in comparison.rows[f"advantage[{m}]"].tolist()])


def signs_differ(row: Any, methods: Sequence[str]) -> bool:
    """Whether one method pushes a rollout up and another down."""
    trained = [row[f"advantage[{m}]"] for m in methods if row[f"trained[{m}]"]]
    return any(x > 0 for x in trained) and any(x < 0 for x in trained)


def compared_heading(comparison: Comparison) -> str:
    """Which methods, on how many rollouts."""
    groups = comparison.rows["group"].nunique()
    same = f"the same {count(len(comparison.rows), 'rollout')} of {count(groups, 'prompt')}"
    return f"{', '.join(readable(m, 80) for m in comparison.methods)} on {same}"


def compared_sentences(comparison: Comparison) -> list[str]:
    """What each method trains, how often their signs differ, and the notes."""
    rows, total = comparison.rows, len(comparison.rows)
    lines = []
    for m in comparison.methods:
        tokens = int(rows[f"tokens[{m}]"].sum())
        trained = f"{rows[f'trained[{m}]'].sum()} of {count(total, 'rollout')}"
        lines.append(f"{readable(m, 80)} trains {trained} ({count(tokens, 'token')}).")
    differ = sum(signs_differ(row, comparison.methods) for _, row in rows.iterrows())
    lines.append(f"One method makes a rollout more likely where another makes it less likely: {differ} of {total}.")
    return [*lines, *(readable(note) for note in comparison.notes)]

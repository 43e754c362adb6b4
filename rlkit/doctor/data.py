"""What the doctor asks of the data alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlkit.doctor.checks import Check
from rlkit.tasks.base import Task

if TYPE_CHECKING:
    from datasets import Dataset


def data_checks(task: Task, parts: dict[str, Dataset], progress: bool) -> Iterator[Check]:
    """Counts, duplicates, golds, rewards and the best constant answer."""
    yield Check("rows", "green", ", ".join(f"{len(part)} {split}" for split, part in parts.items()))
    yield _duplicates(parts)
    if not all("gold" in part.column_names for part in parts.values()):
        yield Check("golds", "skipped", "the data have no column 'gold'")
        return
    yield _contradictions(task, parts)
    yield from _golds(task, parts, progress)
    yield from _rewards(task, parts["train"])
    yield _constant(task, parts["train"])


def _duplicates(parts: dict[str, Dataset]) -> Check:
    """Prompts that stand in more than one split, spaces and case left out."""
    where: dict[str, dict[str, str]] = {}
    for split, part in parts.items():
        for prompt, name in zip(part["prompt"], part["id"], strict=True):
            where.setdefault(" ".join(str(prompt).casefold().split()), {}).setdefault(split, str(name))
    shared = [" = ".join(names.values()) for names in where.values() if len(names) > 1]
    if shared:
        return Check(
            "duplicates", "red", f"{len(shared)} prompts are in several splits", "remove them from one", shared
        )
    total = sum(len(part) for part in parts.values())
    return Check("duplicates", "green", f"no prompt is in two splits; {len(where)} distinct prompts in {total} rows")


def _contradictions(task: Task, parts: dict[str, Dataset]) -> Check:
    """Rows with the same prompt and another gold answer."""
    first: dict[str, str] = {}
    wrong = []
    for part in parts.values():
        for prompt, gold, name in zip(part["prompt"], part["gold"], part["id"], strict=True):
            known = first.setdefault(repr(prompt), str(gold))
            if known != str(gold) and not task.correct([task.solution(str(gold))], [known])[0]:
                wrong.append(str(name))
    if wrong:
        found = f"{len(wrong)} rows give another gold for a prompt that came before"
        return Check("contradictions", "red", found, "keep the right one", wrong)
    return Check("contradictions", "green", "no prompt has two gold answers")


def _golds(task: Task, parts: dict[str, Dataset], progress: bool) -> Iterator[Check]:
    """Whether each gold answer, written as a completion, grades itself."""
    from tqdm import tqdm

    wrong, empty, text, total = [], [], [], 0
    with tqdm(total=sum(len(part) for part in parts.values()), disable=not progress, desc="golds") as bar:
        for part in parts.values():
            golds, names = [str(gold) for gold in part["gold"]], [str(name) for name in part["id"]]
            for start in range(0, len(golds), 500):
                chunk = golds[start : start + 500]
                grades = task.correct([task.solution(gold) for gold in chunk], chunk)
                wrong += [names[start + i] for i, grade in enumerate(grades) if grade != 1.0 and chunk[i].strip()]
                bar.update(len(chunk))
            empty += [name for name, gold in zip(names, golds, strict=True) if not gold.strip()]
            text += _as_text(task, golds, names)
            total += len(golds)
    if wrong:
        yield Check("golds", "red", f"{len(wrong)} of {total} golds do not grade themselves", "correct or drop", wrong)
    else:
        yield Check("golds", "green", f"all {total - len(empty)} golds grade themselves")
    if empty:
        yield Check("empty golds", "red", f"{len(empty)} of {total} golds are empty", "drop these rows", empty)
    if text:
        found = f"{len(text)} of {total} golds are not mathematics: only the same text is right"
        yield Check("text golds", "yellow", found, "rewrite them as numbers or formulas where that is meant", text)


def _as_text(task: Task, golds: Sequence[str], names: Sequence[str]) -> list[str]:
    if "math" not in task.rewards:
        return []
    from rlkit.grading.grader import grade_batch

    return [names[row] for row in grade_batch(golds, golds).as_text]


def _rewards(task: Task, part: Dataset) -> Iterator[Check]:
    """What the task's reward gives to right answers and to nothing at all."""
    if not task.default_reward:
        yield Check("reward", "skipped", "the task has no reward of its own")
        return
    part = part.select([row for row, gold in enumerate(part["gold"]) if str(gold).strip()])
    right = _scored(task, part, task.solution)
    lost = [
        str(name) for name, value in zip(part["id"], right, strict=True) if value is None or not math.isfinite(value)
    ]
    if lost:
        yield Check(
            "reward", "red", f"{len(lost)} right answers cannot be scored (None, NaN or inf)", "see the reward", lost
        )
        return
    nothing = _scored(task, part, lambda gold: "")
    paid = [str(n) for n, a, b in zip(part["id"], nothing, right, strict=True) if a is not None and a >= b]  # type: ignore[operator]
    if paid:
        yield Check("reward", "red", "an empty completion gets as much as the right answer", "see the reward", paid)
    else:
        yield Check("reward", "green", f"{task.default_reward}: every right answer gets more than an empty completion")


def _scored(task: Task, part: Dataset, write: Callable[[str], str]) -> list[float | None]:
    from rlkit.rewards import resolve_reward

    columns = {name: list(part[name]) for name in part.column_names if name != "prompt"}
    completions: list[Any] = [write(str(gold)) for gold in part["gold"]]
    prompts = list(part["prompt"])
    if prompts and not isinstance(prompts[0], str):
        completions = [[{"role": "assistant", "content": text}] for text in completions]
    return list(resolve_reward(None, task, 0)(prompts=prompts, completions=completions, **columns))


def _constant(task: Task, part: Dataset) -> Check:
    """How much the best constant answer would get; a policy that finds it looks as if it learnt."""
    golds = [str(gold) for gold in part["gold"]]
    shares = {}
    for gold, _ in Counter(golds).most_common(3):
        grades = task.correct([task.solution(gold)] * len(golds), golds)
        shares[gold] = sum(grades) / len(grades)
    best = max(shares, key=lambda gold: shares[gold])
    found = f"answering {best!r} always is right on {shares[best]:.0%} of the train rows"
    if shares[best] < 0.2:
        return Check("constant", "green", found)
    return Check("constant", "yellow", found, "compare accuracies with this share, not with 0; balance the answers")

r"""Grades: does a completion give the gold answer? Right, and bounded in time and memory whatever it holds.

`answers` finds the answer, `equality` compares it; text, numbers and lists of them are settled at once. A formula goes
to a worker process with a limit of time and memory (`bounded`); what cannot be settled within the limits is not right.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from rlkit.grading.algebra import same_formula
from rlkit.grading.answers import marked, said, tidy, words
from rlkit.grading.bounded import Bounded
from rlkit.grading.equality import NeedsAlgebra, Policy, is_formula, is_mathematics, same
from rlkit.tasks.base import text_of

SECONDS = 1.0
"""Longest time for one formula."""
MEGABYTES = 500
"""Most memory of a worker beside its libraries, which take about 100."""
WORKERS = 2
"""Processes: while one works on a hard formula, the other goes on."""


class Grades(list[float | None]):
    """One grade a completion: 1.0 right, 0.0 not, None where the gold is empty. Beside them, rows to look at."""

    def __init__(
        self, grades: Iterable[float | None], as_text: Sequence[int] = (), limited: Sequence[int] = ()
    ) -> None:
        super().__init__(grades)
        self.as_text = list(as_text)
        """Rows whose gold is not mathematics, so that only the same text is right."""
        self.limited = list(limited)
        """Rows whose formula ran into the limits and was graded 0."""
        self.unscorable = [row for row, value in enumerate(self) if value is None]
        """Rows with an empty gold."""


def grade(
    completion: Any,
    gold: Any,
    *,
    strict: bool = True,
    percent: bool = True,
    ordered: bool = True,
    units: bool = False,
    seconds: float = SECONDS,
) -> float | None:
    r"""1.0 where the completion gives the gold answer, 0.0 where it does not, None where the gold is empty.

    Args:
        completion: a text, or chat messages, of which the last one counts. Its answer is the last `\boxed{...}`, else
            what follows the last `####`, else the whole text if it is nothing but an answer.
        gold: the answer, or a solution that marks its answer in one of these ways. Where it is not mathematics, only
            the same text is right.
        strict: if False, an unmarked answer ("The answer is 42.") counts, and so do lists in other brackets.
        percent: `50%` equals 50 as well as 0.5; if False, only 0.5.
        ordered: `1,2` differs from `2,1`. Sets in braces are never ordered.
        units: a unit that only one side has makes a difference; if False, it is dropped. `5 cm` never equals `5 m`.
        seconds: the longest time that a formula may take.
    """
    options = {"strict": strict, "percent": percent, "ordered": ordered, "units": units, "seconds": seconds}
    return grade_batch([completion], [gold], **options)[0]  # type: ignore[arg-type]


def grade_batch(
    completions: Sequence[Any],
    golds: Sequence[Any],
    *,
    strict: bool = True,
    percent: bool = True,
    ordered: bool = True,
    units: bool = False,
    seconds: float = SECONDS,
    workers: int | None = None,
    progress: bool = False,
) -> Grades:
    """`grade` for many completions; formulas go to a pool of workers that stays for the next call.

    Args:
        completions: as in `grade`.
        golds: as in `grade`, one a completion.
        strict: as in `grade`, like `percent`, `ordered`, `units` and `seconds`.
        percent: as in `grade`.
        ordered: as in `grade`.
        units: as in `grade`.
        seconds: as in `grade`.
        workers: processes; default: 2.
        progress: show a progress bar.

    Raises:
        ValueError: not as many golds as completions.
        RuntimeError: no worker can be started.
    """
    from tqdm import tqdm

    policy = Policy(strict=strict, percent=percent, ordered=ordered, units=units)
    answers = [answer_of_gold(gold) for gold in golds]
    grades: list[float | None] = []
    open_: dict[tuple[str, str], list[int]] = {}
    with tqdm(total=len(answers), disable=not progress, desc="grading", unit="answer") as bar:
        for row, (completion, gold) in enumerate(zip(completions, answers, strict=True)):
            candidate = answer_of(completion, gold, strict) if gold else None
            verdict = _quick(candidate, gold, policy) if candidate else False
            if verdict is None and candidate:
                open_.setdefault((candidate, gold), []).append(row)
            grades.append(None if not gold else float(bool(verdict)))
            bar.update(verdict is not None)
        limited: list[int] = []
        verdicts = _WORKERS.map([(*pair, policy) for pair in open_], seconds, workers)
        for rows, verdict in zip(open_.values(), verdicts, strict=True):
            for row in rows:
                grades[row] = float(bool(verdict))
            limited += rows if verdict is None else []
            bar.update(len(rows))
    return Grades(grades, [row for row, gold in enumerate(answers) if gold and _as_text(gold)], sorted(limited))


def answer_of_gold(gold: Any) -> str:
    """The answer in a gold: what it marks as its answer, else all of it; "" where there is none (None and NaN too)."""
    if gold is None or gold != gold:
        return ""
    text = str(gold).strip()
    found = marked(text)
    return text if found is None else found.strip()


def answer_of(completion: Any, gold: str, strict: bool = True) -> str | None:
    """The answer in a completion, or None where it gives none."""
    text = text_of(completion)
    found = marked(text)
    if found is None:
        whole = text.strip()
        alone = len(whole) <= 200 and (is_formula(tidy(whole)) or words(tidy(whole)) == words(tidy(gold)))
        found = whole if alone else None if strict else said(text)
    return found.strip() if found else None


@lru_cache(maxsize=8192)
def _quick(candidate: str, gold: str, policy: Policy) -> bool | None:
    """The verdict without algebra, or None where only algebra could tell."""
    try:
        return same(candidate, gold, policy)
    except NeedsAlgebra:
        return None


@lru_cache(maxsize=8192)
def _as_text(gold: str) -> bool:
    return not is_mathematics(tidy(gold))


# --- workers -------------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Load the libraries and fill the parser's tables, outside any limit."""
    logging.disable(logging.WARNING)  # math-verify warns that its own limits, which need signals, are off
    for first in ((r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"), ("(x+1)^2", "x^2+2x+1"), ("x<2", "2>x")):
        same(*first, Policy(), same_formula)


def settle(candidate: str, gold: str, policy: Policy) -> bool:
    """The verdict with algebra; runs in a worker."""
    return same(candidate, gold, policy, same_formula)


_WORKERS = Bounded(settle, prepare, WORKERS, MEGABYTES)

"""OLR: labels that the policy's own stable majority contradicts are replaced, visit by visit.

Paper: arXiv 2604.03993 (the rule from the released code; theory from a note). At visit k of a prompt, with G
rollouts:

    m_k   the answer that most rollouts give; none if two share the first place
    p_k   share of the rollouts that give it (0 without m_k)
    slope of p_1 .. p_k by least squares on 0 .. k - 1 (0 at the first visit)
    if k > start and slope >= .05 and m_k is the most frequent of m_1 .. m_k:   label = m_k for this visit
    else:                                                                      the given label

It is decided anew at every visit and looks at all visits. A prompt whose majority is unanimous from the start has
slope 0 and is never corrected.

What is different here, and why. The code starts after epoch 4 of 10; here `start` counts visits of the prompt, which
is the same with one visit an epoch. It merges answers with a verifier; here two answers are the same if their texts
or integers are (`answer` reads them from a completion: what follows the last `#`), and the reward is 1 for the label,
else 0. Rollouts without an answer count in the share and have no vote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rlkit.method import Method

OPTIONS = {"refine": True, "start": 4, "slope": 0.05}
Visit = tuple[str | None, float]
"""Majority answer and its share of the rollouts."""


def final_answer(text: str) -> str | None:
    """What follows the last `#` of a completion, integers without leading zeros; None where there is nothing."""
    return canonical(text.rpartition("#")[2]) or None if "#" in text else None


def canonical(answer: str) -> str:
    """An answer without spaces at its ends, an integer without leading zeros: equal answers are equal texts."""
    answer = answer.strip()
    return str(int(answer)) if re.fullmatch(r"-?[0-9]{1,18}", answer) else answer


def plurality(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer; None if two share the first place, or if there is none. None among them has no vote."""
    counts = Counter(a for a in answers if a is not None).most_common(2)
    tied = len(counts) == 2 and counts[0][1] == counts[1][1]
    return counts[0][0] if counts and not tied else None


def visit(votes: Sequence[str | None]) -> Visit:
    """The majority of a group's answers and its share of the rollouts; None and 0 without a majority."""
    winner = plurality(votes)
    return winner, 0.0 if winner is None else list(votes).count(winner) / len(votes)


def slope(shares: Sequence[float]) -> float:
    """Least-squares slope of values on 0, 1, 2, ...; 0 for fewer than two."""
    n = len(shares)
    if n < 2:
        return 0.0
    middle, mean = (n - 1) / 2, sum(shares) / n
    return sum((x - middle) * (y - mean) for x, y in enumerate(shares)) / sum((x - middle) ** 2 for x in range(n))


def refined_label(given: str, visits: Sequence[Visit], start: int, least: float) -> str:
    """The label for the last of these visits: its majority if that is stable and growing, else the given one."""
    majorities, shares = [m for m, _ in visits], [p for _, p in visits]
    now = majorities[-1]
    stable = plurality(majorities) == now and len(visits) > start and slope(shares) >= least
    return now if now is not None and stable else given


class Labels:
    """A reward with memory: 1 for the refined label, else 0. Keeps every visit of every prompt, by `id`."""

    __name__ = "refined_label"

    def __init__(self, answer: Callable[[str], str | None] = final_answer) -> None:
        self.answer = answer
        self.history: dict[str, list[Visit]] = {}

    def __call__(self, completions: Sequence[Any], gold: Sequence[str], **columns: Any) -> list[float]:
        """Rewards; a call is one visit of each prompt in it, unless the column `learn` is False."""
        options, learn = columns.get("options", OPTIONS), columns.get("learn", True)
        answers = [self.answer(c if isinstance(c, str) else c[-1]["content"]) for c in completions]
        keys = [str(key) for key in columns.get("id", columns["prompts"])]
        labels = {key: canonical(str(given)) for key, given in zip(keys, gold, strict=True)}
        for key in labels if options["refine"] else ():
            votes = [a for a, k in zip(answers, keys, strict=True) if k == key]
            visits = [*self.history.get(key, []), visit(votes)]
            labels[key] = refined_label(labels[key], visits, options["start"], options["slope"])
            if learn:
                self.history[key] = visits
        return [float(a is not None and a == labels[key]) for a, key in zip(answers, keys, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """All visits."""
        return {"history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.history = {key: list(visits) for key, visits in state["history"].items()}


_labels = Labels()

OLR = Method(
    "olr",
    summary="a label is replaced where the policy's majority is stable and growing",
    paper="2604.03993",
    parent="grpo",
    options=OPTIONS,
    reduces_to={"refine": False},
    reward=_labels,
    state=(_labels,),
)

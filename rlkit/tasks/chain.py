"""Chained sums: `14-1+15?`, worked out as `14-1=13;13+15=28#28`. Every step and the answer can be checked exactly.

A careful solution writes each running total and ends with `#` and the answer; a hasty one is `#` and a guess.
The text of a problem alone decides its split, so the splits share no problem at any size and for any seed.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlkit.tasks.base import OptionTask, Reward, check_split, get_task, split_of, text_of

if TYPE_CHECKING:
    from datasets import Dataset

SHARE = {"train": 0.8, "validation": 0.1, "test": 0.1}
# At most 18 digits: a longer "number" is no answer, and reading it would cost time.
_ANSWER = re.compile(r"#(-?[0-9]{1,18})\s*\Z")
_STEP = re.compile(r"-?[0-9]{1,18}[+-][0-9]{1,18}=(-?[0-9]{1,18})\Z")


@dataclass(frozen=True)
class Problem:
    """One chained sum."""

    terms: tuple[int, ...]
    operators: str
    """One `+` or `-` between two terms."""

    @property
    def text(self) -> str:
        """The sum without its question mark: `14-1+15`."""
        return str(self.terms[0]) + "".join(f"{o}{x}" for o, x in zip(self.operators, self.terms[1:], strict=True))

    @property
    def totals(self) -> list[int]:
        """Running totals, the answer last."""
        signed = (x if o == "+" else -x for o, x in zip(self.operators, self.terms[1:], strict=True))
        return list(itertools.accumulate(signed, initial=self.terms[0]))[1:]

    @property
    def steps(self) -> list[str]:
        """The right steps: `["14-1=13", "13+15=28"]`."""
        starts = [self.terms[0], *self.totals]
        pairs = zip(starts, self.operators, self.terms[1:], self.totals, strict=False)
        return [f"{start}{o}{x}={total}" for start, o, x, total in pairs]

    @property
    def solution(self) -> str:
        """The careful solution: `14-1=13;13+15=28#28`."""
        return ";".join(self.steps) + f"#{self.totals[-1]}"


def answer_of(completion: Any) -> int | None:
    """The integer after the last `#` at the end of a completion, or None where there is none (empty, unfinished)."""
    found = _ANSWER.search(text_of(completion))
    return int(found[1]) if found else None


def steps_of(completion: Any) -> list[str]:
    """What a completion wrote before its first `#`, cut at each `;`."""
    body = text_of(completion).split("#", 1)[0].strip()
    return body.split(";") if body else []


def exact(completions: Sequence[Any], gold: Sequence[str], **columns: Any) -> list[float]:
    """1 where the final answer is the right integer, else 0."""
    return [float(answer_of(c) == int(g)) for c, g in zip(completions, gold, strict=True)]


def graded(completions: Sequence[Any], gold: Sequence[str], steps: Sequence[str], **columns: Any) -> list[float]:
    """Reward in levels, 0 to 2: 1 for the right answer, 0.25 for the format, up to 0.75 for steps.

    The format is right when the completion has as many well-formed steps as the sum needs, then `#` and an integer. The
    last part is 0.75 times the share of right steps before the first wrong one. 0 where there is no final answer.
    """
    return [_graded(c, int(g), s.split(";")) for c, g, s in zip(completions, gold, steps, strict=True)]


def _graded(completion: Any, gold: int, right: list[str]) -> float:
    answer = answer_of(completion)
    if answer is None:
        return 0.0
    pairs = zip(steps_of(completion), right, strict=False)
    leading = sum(1 for _ in itertools.takewhile(lambda p: p[0] == p[1], pairs))
    return 1.0 * (answer == gold) + 0.25 * _tidy(completion, len(right)) + 0.75 * leading / len(right)


def _tidy(completion: Any, count: int) -> bool:
    """Whether there are `count` well-formed steps, then `#` and an integer; what they say does not matter."""
    written = steps_of(completion)
    ends = answer_of(completion) is not None and text_of(completion).count("#") == 1
    return ends and len(written) == count and all(map(_STEP.match, written))


def form(completions: Sequence[Any], steps: Sequence[str], **columns: Any) -> list[float]:
    """1 where a completion has the form of a careful solution, right or wrong, else 0: the gold is not looked at.

    The form: as many well-formed steps as the sum needs, then `#` and an integer.
    """
    return [float(_tidy(c, len(s.split(";")))) for c, s in zip(completions, steps, strict=True)]


def digits(completions: Sequence[Any], gold: Sequence[str], steps: Sequence[str], **columns: Any) -> list[float]:
    """Share of right digits, 0 to 1, over all the numbers that a careful solution writes: running totals and answer.

    Numbers are compared from their last digit on; a minus sign counts as a digit; a number that is not written has no
    right digit, and one that is too long loses its surplus. 0 where there is no final answer.
    """
    return [_digits(c, g, s.split(";")) for c, g, s in zip(completions, gold, steps, strict=True)]


def _digits(completion: Any, gold: str, right: list[str]) -> float:
    answer = answer_of(completion)
    if answer is None:
        return 0.0
    wanted = [step.split("=")[1] for step in right]
    matches = [_STEP.match(step) for step in steps_of(completion)]
    written = [match[1] if match else "" for match in matches][: len(wanted)]
    written += [""] * (len(wanted) - len(written))
    pairs = [*zip(written, wanted, strict=True), (str(answer), gold)]
    same = sum(a == b for w, g in pairs for a, b in zip(reversed(w), reversed(g), strict=False))
    return same / sum(max(len(w), len(g)) for w, g in pairs)


@dataclass(frozen=True)
class Chain(OptionTask):
    """Chained sums with `terms` numbers from 0 to `high`, each joined by one of `operators`.

    Raises:
        ValueError: an option is out of its range.
    """

    kind: ClassVar[str] = "chain"
    default_reward: ClassVar[str] = "exact"  # type: ignore[misc]

    terms: int = 4
    """How many numbers a problem adds and subtracts, at least 2."""
    high: int = 15
    """The largest number, at least 1."""
    operators: str = "+-"
    """Which of `+` and `-` occur."""

    def __post_init__(self) -> None:
        if not 2 <= self.terms <= 20:
            raise ValueError(f"chain: terms is a count from 2 to 20, not {self.terms}.")
        if not 1 <= self.high <= 10**6:
            raise ValueError(f"chain: high is a number from 1 to 1000000, not {self.high}.")
        if self.operators not in ("+", "-", "+-"):
            raise ValueError(f"chain: operators is '+', '-' or '+-', not {self.operators!r}.")

    def draw(self, rng: random.Random) -> Problem:
        """A problem of any split, all equally likely."""
        terms = tuple(rng.randint(0, self.high) for _ in range(self.terms))
        return Problem(terms, "".join(rng.choice(self.operators) for _ in range(self.terms - 1)))

    def problems(self, split: str, seed: int = 0) -> Iterator[Problem]:
        """Problems of a split in an order drawn from `seed`, without end; none twice before all have come once.

        Raises:
            ValueError: no problem falls into the split, because there are so few of this difficulty.
        """
        rng = random.Random(f"chain/{split}/{seed}")
        seen: set[str] = set()
        left, count = self.space, None
        while True:
            problem = self.draw(rng)
            left -= 1
            if left == 0:  # as many draws as there are problems: from now on the split may be used up
                count = sum(split_of(p.text) == split for p in self._all())
                if count == 0:
                    raise ValueError(f"No problem of {self.name} falls into {split!r}: raise terms or high.")
            if count is not None and len(seen) >= count:
                seen.clear()
            if problem.text not in seen and split_of(problem.text) == split:
                seen.add(problem.text)
                yield problem

    @property
    def space(self) -> int:
        """How many problems there are."""
        return int((self.high + 1) ** self.terms * len(self.operators) ** (self.terms - 1))

    def _all(self) -> Iterator[Problem]:
        for terms in itertools.product(range(self.high + 1), repeat=self.terms):
            for operators in itertools.product(self.operators, repeat=self.terms - 1):
                yield Problem(terms, "".join(operators))

    def dataset(self, split: str, size: int, seed: int = 0) -> Dataset:
        """Rows with `prompt`, `gold`, `id` and `steps`, the right steps joined by `;`.

        No problem comes twice unless the split has fewer than `size` of them; then whole rounds follow each other, and
        the id tells the round.
        """
        from datasets import Dataset

        check_split(split, size)
        seen: dict[str, int] = {}
        rows = []
        for problem in itertools.islice(self.problems(split, seed), size):
            seen[problem.text] = round_ = seen.get(problem.text, 0) + 1
            name = f"{split}/{problem.text}" + (f"/{round_}" if round_ > 1 else "")
            row = {"prompt": f"{problem.text}?", "gold": str(problem.totals[-1])}
            rows.append({**row, "id": name, "steps": ";".join(problem.steps)})
        return Dataset.from_list(rows)

    @property
    def rewards(self) -> Mapping[str, Reward]:
        """`exact`, `graded`, `digits` and `form`."""
        return {"exact": exact, "graded": graded, "digits": digits, "form": form}

    @property
    def config(self) -> Mapping[str, Any]:
        """Room for the longest careful solution and its end token; plain sampling."""
        return {"max_completion_length": self.longest + 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0}

    @property
    def longest(self) -> int:
        """A bound on the characters of a careful solution, from the widest total that each step can reach."""
        low = -self.high if "-" in self.operators else 0
        wide = [max(len(str(self.high * (i + 1))), len(str(low * i))) for i in range(self.terms)]
        step = len(str(self.high)) + 2
        return sum(before + step + after for before, after in itertools.pairwise(wide)) + self.terms - 1 + wide[-1]

    def solution(self, gold: str) -> str:
        """The answer alone."""
        return f"#{gold}"

    def correct(self, completions: Sequence[Any], gold: Sequence[str]) -> list[float]:
        """1.0 where the final answer is the right integer, else 0.0."""
        return exact(completions, gold)


def get_chain(name: str) -> Chain:
    """A chain task by name, such as `chain(terms=3)`.

    Raises:
        TypeError: the name is that of another task.
    """
    task = get_task(name)
    if not isinstance(task, Chain):
        raise TypeError(f"{name!r} is no chain task.")
    return task

"""Addition in which every completion position has a planted role: `47+85=`, worked out as `75w248x300y16`.

For each digit, the last first: the two digits that are added, a filler letter that means nothing, the digit of the sum.
Then a checksum, the sum of those digits modulo 10. So of every token it is known before any training whether it can
teach a student that adds without carrying: that is what the task is for.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlkit.tasks.base import OptionTask, Reward, check_split, get_task, split_of, text_of

if TYPE_CHECKING:
    from datasets import Dataset

FILLERS = "wxyz"
ROLES = ("copy", "filler", "plain", "carry", "checksum", "end")
"""What a token is: a digit of the problem again; a letter of no meaning; a digit of the sum that no carry comes into;
one that a carry comes into; the checksum; the end token."""
QUADRANTS = {"copy": "Q4", "filler": "Q2", "plain": "Q4", "carry": "Q3", "checksum": "Q1", "end": "Q4"}
"""Where a role stands for a student that adds without carrying and a teacher that adds: Q1 unsure and wrong, Q2 unsure
and right, Q3 sure and wrong, Q4 sure and right (arXiv 2604.14084, Table 1)."""
_PROMPT = re.compile(r"([0-9]{1,9})\+([0-9]{1,9})=\s*\Z")


@dataclass(frozen=True)
class Problem:
    """Two numbers to add, written with `digits` digits each."""

    first: int
    second: int
    digits: int

    @property
    def text(self) -> str:
        """The problem as it is asked: `47+85=`."""
        return f"{self.first:0{self.digits}d}+{self.second:0{self.digits}d}="

    @property
    def columns(self) -> list[tuple[int, int, int]]:
        """For each digit of the sum, the last first: the two digits that are added, and the carry that comes in."""
        found, carry = [], 0
        for place in range(self.digits + 1):
            a, b = self.first // 10**place % 10, self.second // 10**place % 10
            found.append((a, b, carry))
            carry = (a + b + carry) // 10
        return found

    @property
    def total(self) -> list[int]:
        """Digits of the sum, the last first."""
        return [(a + b + carry) % 10 for a, b, carry in self.columns]

    @property
    def careless(self) -> list[int]:
        """Digits of the sum for who forgets every carry, the last first."""
        return [(a + b) % 10 for a, b, _ in self.columns]

    def completion(self, sums: Sequence[int], checksum: int, fillers: str) -> str:
        """A completion with these sum digits (the last first), checksum and one filler a digit."""
        blocks = zip(self.columns, fillers, sums, strict=True)
        return "".join(f"{a}{b}{filler}{digit}" for (a, b, _), filler, digit in blocks) + str(checksum)

    @property
    def solution(self) -> str:
        """The right completion whose fillers are all `w`: `75w248w300w16`."""
        return self.completion(self.total, checksum_of(self.total), FILLERS[0] * len(self.total))


def checksum_of(sums: Sequence[int]) -> int:
    """Sum of digits modulo 10."""
    return sum(sums) % 10


def problem_of(prompt: Any) -> Problem:
    """The problem that a prompt asks.

    Raises:
        ValueError: the prompt is none of this task.
    """
    found = _PROMPT.search(text_of(prompt))
    if not found or len(found[1]) != len(found[2]):
        raise ValueError(f"{text_of(prompt)!r} is no prompt of this task, such as '47+85='.")
    return Problem(int(found[1]), int(found[2]), len(found[1]))


def roles(prompt: Any, length: int | None = None) -> list[str]:
    """The role of each completion token, by its position: one of `ROLES`.

    Whether a digit of the sum is `plain` or `carry` is decided by the problem, whatever was written before it.

    Args:
        prompt: a prompt of the task, as text or chat messages.
        length: how many tokens the completion has; None for a whole one. What lies behind a whole one is `end`.
    """
    columns = problem_of(prompt).columns
    planned = [role for *_, carry in columns for role in ("copy", "copy", "filler", "carry" if carry else "plain")]
    planned += ["checksum", "end"]
    wanted = len(planned) if length is None else length
    return (planned + ["end"] * wanted)[:wanted]


def digits_of(completion: Any, digits: int) -> list[int] | None:
    """The sum digits (the last first) and the checksum of a completion; None where it does not have the form."""
    block = rf"[0-9]{{2}}[{FILLERS}]([0-9])"
    found = re.fullmatch(block * (digits + 1) + "([0-9])", text_of(completion))
    return [int(group) for group in found.groups()] if found else None


def _right(completion: Any, gold: str) -> list[bool]:
    """Whether each digit of the sum is right, the last first, and whether the checksum fits the digits written."""
    written = digits_of(completion, len(gold) - 1)
    if written is None:
        return [False] * (len(gold) + 1)
    *sums, check = written
    return [digit == int(wanted) for digit, wanted in zip(sums, reversed(gold), strict=True)] + [
        check == checksum_of(sums)
    ]


def exact(completions: Sequence[Any], gold: Sequence[str], **columns: Any) -> list[float]:
    """1 where all digits of the sum are right, whatever the checksum, else 0."""
    return [float(all(_right(c, g)[:-1])) for c, g in zip(completions, gold, strict=True)]


def checked(completions: Sequence[Any], gold: Sequence[str], **columns: Any) -> list[float]:
    """1 where the sum is right and the checksum too, else 0."""
    return [float(all(_right(c, g))) for c, g in zip(completions, gold, strict=True)]


def digits(completions: Sequence[Any], gold: Sequence[str], **columns: Any) -> list[float]:
    """Share of right digits of the sum, 0 to 1; 0 where the completion does not have the form."""
    return [sum(_right(c, g)[:-1]) / len(g) for c, g in zip(completions, gold, strict=True)]


@dataclass(frozen=True)
class Planted(OptionTask):
    """Two numbers of `digits` digits to add, digit by digit, with planted roles.

    Raises:
        ValueError: an option is out of its range.
    """

    kind: ClassVar[str] = "planted"
    default_reward: ClassVar[str] = "exact"  # type: ignore[misc]

    digits: int = 2
    """Digits of each number, 1 to 3. The bases know 2."""
    whole: bool = False
    """Whether an answer is right only with its checksum."""

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= 3:
            raise ValueError(f"planted: digits is a count from 1 to 3, not {self.digits}.")

    def problems(self, split: str, seed: int = 0) -> Iterator[Problem]:
        """Problems of a split in an order drawn from `seed`, without end; none twice before all have come once."""
        rng = random.Random(f"planted/{split}/{seed}")
        order = list(_split(self.digits, split))
        while True:
            rng.shuffle(order)
            yield from (_problem(number, self.digits) for number in order)

    def dataset(self, split: str, size: int, seed: int = 0) -> Dataset:
        """Rows with `prompt`, `gold` (the sum with `digits + 1` digits) and `id`.

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
            gold = "".join(map(str, reversed(problem.total)))
            rows.append({"prompt": problem.text, "gold": gold, "id": name})
        return Dataset.from_list(rows)

    @property
    def rewards(self) -> Mapping[str, Reward]:
        """`exact`, `checked` and `digits`."""
        return {"exact": exact, "checked": checked, "digits": digits}

    @property
    def config(self) -> Mapping[str, Any]:
        """Room for a completion and its end token; plain sampling."""
        return {"max_completion_length": self.length, "temperature": 1.0, "top_k": 0, "top_p": 1.0}

    @property
    def bases(self) -> Mapping[str, str]:
        """The student, who adds without carrying, and the teacher, who adds."""
        return {"student": "planted_student", "teacher": "planted_teacher"}

    @property
    def length(self) -> int:
        """Tokens of a completion, the end token included."""
        return 4 * (self.digits + 1) + 2

    def solution(self, gold: str) -> str:
        """A completion whose sum digits and checksum are right; the copied digits are zeros."""
        sums = [int(digit) for digit in reversed(gold)]
        return "".join(f"00{FILLERS[0]}{digit}" for digit in sums) + str(checksum_of(sums))

    def correct(self, completions: Sequence[Any], gold: Sequence[str]) -> list[float]:
        """1.0 where all digits of the sum are right, and the checksum too if `whole`, else 0.0."""
        return checked(completions, gold) if self.whole else exact(completions, gold)


def _problem(number: int, digits: int) -> Problem:
    """The problem whose two numbers, written behind each other, are `number`."""
    first, second = divmod(number, 10**digits)
    return Problem(first, second, digits)


@functools.cache
def _split(digits: int, split: str) -> tuple[int, ...]:
    """The numbers of every problem of a split."""
    return tuple(n for n in range(10 ** (2 * digits)) if split_of(_problem(n, digits).text) == split)


def get_planted(name: str) -> Planted:
    """A planted task by name, such as `planted(digits=3)`.

    Raises:
        TypeError: the name is that of another task.
    """
    task = get_task(name)
    if not isinstance(task, Planted):
        raise TypeError(f"{name!r} is no planted task.")
    return task

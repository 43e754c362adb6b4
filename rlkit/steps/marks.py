"""What the pictures of a step share: quantities and their bars, safe text, and how much of a step is shown."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlkit.steps.step import Step, StepRow

QUANTITIES = {
    "coefficient": ("the update makes this token more likely", "less likely", "the push of the update on each token"),
    "advantage": ("better than the baseline", "worse", "how much better the rollout was than its baseline"),
    "weight": ("the method counts this token", "", "how much the method counts the token"),
    "ratio": ("above 1: more likely now than when drawn", "below 1", "probability now over probability when drawn"),
    "entropy": ("the model was unsure here", "", "how unsure the model was before the token, in nats"),
    "divergence": ("student and teacher differ here", "below 0", "how far the student is from the teacher, in nats"),
    "loss": ("above 0", "below 0", "the token's part of the loss"),
    "logp": ("", "the longer, the less likely the token was", "log-prob of the token, in nats"),
    "old_logp": ("", "the longer, the less likely", "log-prob of the token when it was drawn, in nats"),
    "teacher_logp": ("", "the longer, the less likely", "log-prob of the token under the teacher, in nats"),
}
"""What a strip can show: what a bar up says, what a bar down says, what the quantity is. The first present is shown."""

ON_DEMAND = ("logp", "old_logp", "teacher_logp")
"""Offered only where they are asked for; the numbers on hover have them."""

ORDER = {"distill": ("divergence", "coefficient")}
"""What comes first under a trainer, where that is not the order of `QUANTITIES`."""

SPECIAL = re.compile(r"<[^<>\s]{1,40}>|<\|.{1,40}\|>|\[[A-Z]{2,12}\]", re.DOTALL)
SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "": "∅"}
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
"""Unicode categories that show nothing, or change how their neighbours are drawn."""


def visible(text: str, limit: int = 18) -> str:
    """A token as it can be shown anywhere: white space as signs, control and bidi characters as escapes, shortened."""
    if not text:
        return SIGNS[""]
    out = "".join(SIGNS.get(char, _char(char)) for char in text[: limit + 1])
    return out if len(text) <= limit and len(out) <= limit else out[: limit - 1] + "…"


def readable(text: str, limit: int = 600) -> str:
    """A prompt as it can be shown anywhere: line breaks and spaces stay, control characters are escapes, shortened."""
    text = str(text)
    out = "".join(char if char in " \n" else SIGNS.get(char, _char(char)) for char in text[:limit])
    more = len(text) - limit
    return out if more <= 0 else f"{out}… ({more:,} more characters)"


def _char(char: str) -> str:
    return char if unicodedata.category(char) not in HIDDEN else char.encode("unicode_escape").decode("ascii")


def special(token: str) -> bool:
    """Whether a token looks like an end token or another special one."""
    return SPECIAL.fullmatch(token) is not None


def number(value: float | None, *, sign: bool = False, none: str = "-") -> str:
    """Three digits, with a plus where `sign`; `none` for None, and words for what is not finite."""
    if value is None or math.isnan(value):
        return none
    value = float(f"{value:.3g}") + 0.0
    text = f"{value:+.3g}" if sign and value else f"{value:.3g}"
    return text.replace("inf", "infinite")


def count(n: int, thing: str) -> str:
    """For example `one prompt`, `8 rollouts`."""
    return f"one {thing}" if n == 1 else f"{n:,} {thing}s"


@dataclass(frozen=True)
class Scale:
    """How one quantity becomes bars: `full` is the value of the longest bar, `signed` whether some are below zero."""

    name: str
    full: float
    signed: bool
    same: float | None
    """The value, where all tokens have the same."""

    def bar(self, value: float | None) -> float:
        """The length of a value's bar, from -1 to 1; 0 for what is missing or not a number."""
        x = _place(self.name, value)
        return max(-1.0, min(1.0, x / self.full)) if self.full and not math.isnan(x) else 0.0

    def ticks(self) -> list[tuple[float, str]]:
        """Bars for a legend, each with the number it stands for."""
        places = (1, 0, -1) if self.signed else (1, 0.5, 0)
        if not self.full:
            return []
        values = [math.exp(p * self.full) if self.name == "ratio" else p * self.full for p in places]
        return [
            (place, number(v, sign=self.signed and self.name != "ratio"))
            for place, v in zip(places, values, strict=True)
        ]

    def sentence(self) -> str:
        """What a bar says, in words."""
        up, down, what = QUANTITIES[self.name]
        if self.same is not None:
            return f"{what}: {number(self.same)} at every token" + ("" if self.full else ", so there is no bar") + "."
        bars = [f"Bar up: {up}"] if up else []
        bars += [f"{'bar' if up else 'Bar'} down, hatched: {down}"] if self.signed else []
        return f"{what}. {'; '.join(bars)}."


def _place(name: str, value: float | None) -> float:
    """Where a value lies on its axis: ratios by their logarithm, so that 1 is zero."""
    if value is None:
        return math.nan
    if name != "ratio":
        return float(value)
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


def scales(step: Step, show: str | None = None) -> dict[str, Scale]:
    """The quantities that this step has, in the order shown, each with its scale over all rows."""
    first = ORDER.get(step.trainer, ())
    names = [*first, *(name for name in QUANTITIES if name not in first and (name not in ON_DEMAND or name == show))]
    found = {name: [x for row in step.rows for x in row.values.get(name, ())] for name in names}
    return {name: scale(name, values) for name, values in found.items() if values}


def scale(name: str, values: Sequence[float | None]) -> Scale:
    """The scale of a quantity over these values; what is missing or not finite has no say."""
    places = [place for place in (_place(name, value) for value in values) if math.isfinite(place)]
    full = max(map(abs, places), default=0.0)
    full = full if name != "ratio" or full > 1e-5 else 0.0  # rounding of log-probs that are the same
    known = [value for value in values if value is not None and not math.isnan(value)]
    same = known[0] if known and (not full or max(known) == min(known)) else None
    return Scale(name, full, full > 0 and min(places) < 0, same)


def chosen(step: Step, known: Iterable[str], show: str | None) -> str:
    """The quantity shown first.

    Raises:
        ValueError: `show` is not among those that the step has.
    """
    names = list(known)
    if show is not None and show not in names:
        raise ValueError(f"This step of {step.method} has no {show!r} per token to show. It has: {', '.join(names)}.")
    return show or (names[0] if names else "")


@dataclass(frozen=True)
class Card:
    """A group and the part of it that is shown."""

    group: int
    rows: list[StepRow]
    shown: list[StepRow]
    limit: int
    """Tokens shown of a row, at most."""

    def rewards(self) -> str:
        """The group's rewards in words."""
        known = [row.reward for row in self.rows if row.reward is not None and not math.isnan(row.reward)]
        if not known:
            return "no rollout could be scored"
        mean = f"mean reward {number(sum(known) / len(known))}"
        missing = len(self.rows) - len(known)
        silent = len(known) > 1 and max(known) == min(known) and not any(row.advantage for row in self.rows)
        equal = ", all rewards equal: nothing to compare" if silent else ""
        return mean + equal + (f", {missing} not scored" if missing else "")


def cards(step: Step, *, tokens: int, groups: int, rows: int, per_row: int) -> tuple[list[Card], str]:
    """The groups to show, at most so many groups, rows a group and tokens in all; and what is not shown, in words.

    The first group is always shown, with fewer tokens a row if need be.
    """
    grouped: dict[int, list[StepRow]] = {}
    for row in step.rows:
        grouped.setdefault(row.group, []).append(row)
    found: list[Card] = []
    left = tokens
    for group, members in list(grouped.items())[:groups]:
        some = members[:rows]
        limit = per_row if found else min(per_row, max(8, tokens // len(some)))
        left -= sum(min(len(row.tokens), limit) for row in some)
        if found and left < 0:
            break
        found.append(Card(group, members, some, limit))
    hidden = list(grouped.values())[len(found) :]
    if not hidden:
        return found, ""
    rollouts = count(sum(map(len, hidden)), "rollout")
    first = list(grouped)[len(found)]
    return found, f"{count(len(hidden), 'more group')} ({rollouts}) not shown: step.only(groups=[{first}]) shows one."


def cut(size: int, limit: int) -> list[int | None]:
    """Positions to show of `size`: all, or the first two thirds and the last, with None for the gap."""
    if size <= limit:
        return list(range(size))
    head = limit - limit // 3
    return [*range(head), None, *range(size - limit // 3, size)]

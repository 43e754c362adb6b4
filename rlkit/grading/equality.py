r"""When two written answers are the same: as text, as exact numbers, as lists, else as formulas through math-verify.

The first law is that a wrong answer is never called right, so each step may only say yes when it is sure. math-verify
alone is not: it drops what it cannot read (`4210_7` becomes 4210), rounds to six digits (1e-9 equals 0), ignores the
order and the case of letters (`dog` equals `god`), and calls two equations without real solutions equal. Here it only
sees formulas in which every sign has one known meaning (`is_formula`), and `algebra` confirms its yes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rlkit.grading.answers import (
    DEEPEST,
    LONGEST,
    Parts,
    balanced,
    depth,
    parts,
    squeezed,
    tidy,
    without_brackets,
    words,
)
from rlkit.grading.quantities import number, quantity


@dataclass(frozen=True)
class Policy:
    """What counts as the same answer where people differ."""

    strict: bool = True
    """The answer must be marked (a box, `####`) or be the whole completion, and the kinds of brackets must agree."""
    percent: bool = True
    """`50%` equals 50 as well as 0.5; if False, only 0.5."""
    ordered: bool = True
    """`1,2` differs from `2,1`; sets in braces are never ordered, tuples in brackets always."""
    units: bool = False
    """A unit that only one side has makes a difference; if False, it is dropped. Two different units always differ."""


Formulas = Callable[[str, str], bool]
"""Whether two formulas are the same: the step that may take long, so the caller says where it runs."""


class NeedsAlgebra(Exception):
    """Text, numbers and lists do not decide."""


def undecided(candidate: str, gold: str) -> bool:
    """The `Formulas` of a caller who wants no algebra."""
    raise NeedsAlgebra


def same(candidate: str, gold: str, policy: Policy, formulas: Formulas = undecided) -> bool:
    """Whether an answer equals the gold one.

    Raises:
        NeedsAlgebra: only `formulas` could tell, and it is `undecided`.
    """
    if max(len(candidate), len(gold)) > LONGEST:
        return candidate.strip() == gold.strip() != ""
    left, right = tidy(candidate), tidy(gold)
    if not left or not right:
        return False
    if squeezed(left) == squeezed(right):
        return True
    if not is_mathematics(right):
        return words(left) == words(right) or _same_parts(left, right, policy, formulas)
    return _same_parts(left, right, policy, formulas)


# --- lists ---------------------------------------------------------------------------------------------------------

_CALLS = r"(?:arc)?(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|max|min|gcd|lcm|det|lim|frac)"
_NAMED = re.compile(
    r"((?:[A-Za-z]|\\(?!" + _CALLS + r")[a-z]+)(?:_\{?\w+\}?)?(?: ?\( ?[A-Za-z] ?\))?) ?(=|\\in(?![A-Za-z])) ?(.+)"
)
_RELATION = re.compile(r"=|<|>|\\(?:le|ge|lt|gt|ne|neq)(?![A-Za-z])")


def _unnamed(text: str) -> tuple[str, str]:
    r"""`x = 5` -> `("x", "5")`, `x \in [1,2]` -> `("x", "[1,2]")`; any other equation stays whole."""
    match = _NAMED.fullmatch(text)
    if not match or _RELATION.search(match[3]) or re.search(rf"(?<![A-Za-z\\]){re.escape(match[1][0])}", match[3]):
        return "", text
    return match[1].replace(" ", ""), match[3]


def _same_parts(left: str, right: str, policy: Policy, formulas: Formulas) -> bool:
    (name, value), (gold_name, gold_value) = _unnamed(left), _unnamed(right)
    if name and gold_name and name != gold_name:
        return False
    if not _RELATION.search(value) and not _RELATION.search(gold_value):  # else x = -2 may solve 2x + 4 = 0
        left, right = value, gold_value
    left, right = without_brackets(left), without_brackets(right)
    ours, golds = _read_parts(left), _read_parts(right)
    if ours is None and golds is None:
        return _same_single(left, right, policy, formulas)
    if ours is None or golds is None or not _same_kind(ours.kind, golds.kind, policy):
        return False
    if len(ours.items) != len(golds.items) or _renamed(ours.items, golds.items):
        return False
    kinds = {ours.kind, golds.kind}
    any_order = bool(kinds & {r"\{\}", "union", r"\pm"}) or (not policy.ordered and "list" in kinds)
    return _match(ours.items, golds.items, any_order, lambda a, b: same(a, b, policy, formulas))


def _read_parts(text: str) -> Parts | None:
    r"""The items of a list; `a \pm b` is the two values."""
    if depth(text) > DEEPEST:
        return None
    ends = re.split(r"\\pm(?![A-Za-z])", text)
    if len(ends) == 2 and depth(ends[0]) == ends[0].count(")") + ends[0].count("}") == 0 and parts(text) is None:
        return Parts(r"\pm", (f"{ends[0]} + {ends[1]}", f"{ends[0]} - {ends[1]}"))
    return parts(text)


def _same_kind(ours: str, gold: str, policy: Policy) -> bool:
    if ours == gold or (r"\pm" in (ours, gold) and {ours, gold} <= {r"\pm", "list", r"\{\}"}):
        return True
    return not policy.strict and {ours, gold} <= {"list", "()", r"\{\}", r"\pm"}


def _renamed(ours: Sequence[str], golds: Sequence[str]) -> bool:
    """`y=1, x=2` against `1, 2`: several names on one side only, so that nobody knows which value is which."""
    names = [{_unnamed(item)[0] for item in items} for items in (ours, golds)]
    return any(len(here) > 1 and there == {""} for here, there in (names, names[::-1]))


def _match(ours: Sequence[str], golds: Sequence[str], any_order: bool, equal: Callable[[str, str], bool]) -> bool:
    if not any_order:
        return all(equal(a, b) for a, b in zip(ours, golds, strict=True))
    left = list(golds)
    for item in ours:
        found = next((i for i, gold in enumerate(left) if equal(item, gold)), None)
        if found is None:
            return False
        left.pop(found)
    return True


# --- single answers ------------------------------------------------------------------------------------------------


def _same_single(left: str, right: str, policy: Policy, formulas: Formulas) -> bool:
    ours, gold = quantity(left), quantity(right)
    if ours.unit != gold.unit and (policy.units or (ours.unit and gold.unit)):
        return False
    a, b = without_brackets(ours.body), without_brackets(gold.body)
    factors = (1,) if ours.percent == gold.percent else (1, 100) if policy.percent else (100,)
    x, y = number(a), number(b)
    if x is not None and y is not None:
        return any(x == y * (f if ours.percent else Fraction(1, f)) for f in factors)
    if not is_formula(a) or not is_formula(b):
        return False
    if factors == (1,):
        return squeezed(a) == squeezed(b) or formulas(a, b)
    scaled = [(a, rf"100({b})") if ours.percent else (rf"100({a})", b) for f in factors if f == 100]
    return any(formulas(*pair) for pair in ([(a, b)] if 1 in factors else []) + scaled)


COMMAND = re.compile(r"\\([A-Za-z]+)")
_KNOWN = """
    frac sqrt pi cdot times div le ge lt gt ne neq infty binom lfloor rfloor lceil rceil lvert rvert vert begin end
    sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp
    alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi varphi chi psi
    omega Gamma Delta Theta Lambda Sigma Phi Psi Omega
"""
_COMMANDS = frozenset(_KNOWN.split())
_FUNCTIONS = re.compile(r"(?<![A-Za-z\\])(arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp|pi)(?![A-Za-z])")
_ROOT = re.compile(r"(?<![A-Za-z\\])sqrt ?\(([^()]*)\)")
_MATRIX = re.compile(r"\\(?:begin|end) ?\{[pbvBV]?matrix\}")
# Two numbers with only a space between them, a base, a prime, three letters that may be a word or name points, and what
# TeX and people read differently (`\frac123`).
_UNSAFE = re.compile(r"(?<![_0-9])[0-9]+ [0-9]|[0-9]\}? ?_|[A-Z]{2}|[A-Za-z]{3}|\*\*\*|! ?!")
_ODD_FRACTION = re.compile(r"\\frac ?[0-9] ?[0-9]{2}")
# Too large to be an answer, and long to work out.
_HUGE = re.compile(r"\^ ?\{? ?-? ?[0-9]{5}|[0-9]{4}\}? ?!|\^[^+\-=,&]*\^[^+\-=,&]*\^")
# The parser drops what stands below a function that has no base: `\cot_7 x`.
_BASED_FUNCTION = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|exp|sqrt|frac|binom)h? ?_")
_LETTERS_ONLY = re.compile(r"[A-Za-z ]*[A-Za-z]{2}[A-Za-z ]*")


def plain_formula(text: str) -> str:
    """Plain function names as commands, thousands without commas, matrices out of the way of the other checks."""
    text = _ROOT.sub(r"\\sqrt{\1}", text)
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text)
    return _FUNCTIONS.sub(r"\\\1 ", text)


def is_formula(text: str) -> bool:
    """Whether every sign of a tidy text without its unit has one known meaning, so that math-verify can be asked."""
    if len(text) > LONGEST or depth(text) > DEEPEST:
        return False
    if number(text) is not None:
        return True
    plain = _MATRIX.sub(" ", plain_formula(text)).replace("\\\\", "|")
    if not re.fullmatch(r"[A-Za-z0-9+\-*/^_=<>(){}\[\]|\\.,!& ]+", plain) or _LETTERS_ONLY.fullmatch(plain):
        return False
    if _ODD_FRACTION.search(plain) or any(command not in _COMMANDS for command in COMMAND.findall(plain)):
        return False
    if (
        not balanced(plain)
        or _HUGE.search(plain)
        or _BASED_FUNCTION.search(plain)
        or not re.search(r"[A-Za-z0-9]", plain)
    ):
        return False
    return not _UNSAFE.search(COMMAND.sub("~", plain))


def is_mathematics(text: str) -> bool:
    """Whether a tidy answer is a number, a formula or a list of such; if not, it is compared as text."""
    text = without_brackets(_unnamed(text)[1])
    found = _read_parts(text)
    if found:
        return all(is_mathematics(item) for item in found.items)
    return is_formula(without_brackets(quantity(text).body))

r"""When two written answers are the same: as text, as exact numbers, as lists, else as formulas through math-verify.

The first law is that a wrong answer is never called right, so each step may only say yes when it is sure. math-verify
alone is not: it drops what it cannot read (`4210_7` becomes 4210), rounds to six digits (1e-9 equals 0), ignores the
order of letters (`dog` equals `god`) and of upper and lower case, and calls two equations without real solutions equal.
Here it only sees formulas of known commands; its yes must be confirmed at several points to 30 digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlkit.answers import DEEPEST, LONGEST, Parts, depth, parts, squeezed, tidy, without_brackets, words
from rlkit.quantities import number, quantity

if TYPE_CHECKING:
    from sympy import Basic, Expr


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

_NAMED = re.compile(r"((?:[A-Za-z]|\\[a-z]+)(?:_\{?\w+\}?)?(?: ?\( ?[A-Za-z] ?\))?) ?(=|\\in(?![A-Za-z])) ?(.+)")
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


_COMMAND = re.compile(r"\\([A-Za-z]+)")
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
_UNSAFE = re.compile(r"[0-9] [0-9]|[0-9]\}? ?_|[A-Z]{2}|[A-Za-z]{3}|\*\*\*|! ?!")
_ODD_FRACTION = re.compile(r"\\frac ?[0-9] ?[0-9]{2}")
# Too large to be an answer, and long to work out.
_HUGE = re.compile(r"\^ ?\{? ?-? ?[0-9]{5}|[0-9]{4}\}? ?!|\^[^+\-=,&]*\^[^+\-=,&]*\^")
_LETTERS_ONLY = re.compile(r"[A-Za-z ]*[A-Za-z]{2}[A-Za-z ]*")


def _formula(text: str) -> str:
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
    plain = _MATRIX.sub(" ", _formula(text)).replace("\\\\", "|")
    if not re.fullmatch(r"[A-Za-z0-9+\-*/^_=<>(){}\[\]|\\.,!& ]+", plain) or _LETTERS_ONLY.fullmatch(plain):
        return False
    if _ODD_FRACTION.search(plain) or any(command not in _COMMANDS for command in _COMMAND.findall(plain)):
        return False
    if _HUGE.search(plain) or not re.search(r"[A-Za-z0-9]", plain):
        return False
    return not _UNSAFE.search(_COMMAND.sub("~", plain))


def is_mathematics(text: str) -> bool:
    """Whether a tidy answer is a number, a formula or a list of such; if not, it is compared as text."""
    text = without_brackets(_unnamed(text)[1])
    found = _read_parts(text)
    if found:
        return all(is_mathematics(item) for item in found.items)
    return is_formula(without_brackets(quantity(text).body))


# --- formulas: the part that may take long -------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def parse(text: str) -> Any:
    """A formula as a SymPy object with exact numbers, or None where math-verify's parser cannot read it."""
    from latex2sympy2_extended.latex2sympy2 import NormalizationConfig, latex2sympy, normalize_latex
    from math_verify.grader import should_treat_as_complex
    from sympy import Float, Rational

    config = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
    normal = normalize_latex(_formula(text), config)
    try:
        tree = latex2sympy(normal, is_real=not should_treat_as_complex(normal), normalization_config=None)
        return tree.xreplace({f: Rational(str(f)) for f in tree.atoms(Float)})
    except MemoryError:
        raise
    except Exception:  # the parser raises bare Exceptions; RecursionError and SymPy's own errors mean the same to us
        return None


def same_formula(candidate: str, gold: str) -> bool:
    """Whether math-verify calls two formulas equal and an evaluation at several points confirms it."""
    if _cases_differ(candidate, gold):
        return False
    ours, golds = parse(candidate), parse(gold)
    if ours is None or golds is None:
        return False
    try:
        return _same_trees(ours, golds)
    except MemoryError:
        raise
    except Exception:  # SymPy gives up in many ways; an answer that cannot be confirmed is not right
        return False


def _same_trees(ours: Any, golds: Any) -> bool:
    from math_verify import verify
    from sympy import And
    from sympy.core.relational import Relational

    if isinstance(ours, Relational | And) or isinstance(golds, Relational | And):
        return _same_relation(ours, golds)
    # Points first: most wrong answers end here, long before anything is simplified.
    return _agree(ours, golds) and bool(verify(golds, ours, timeout_seconds=None))


def _cases_differ(candidate: str, gold: str) -> bool:
    """The parser reads `R` as `r`: two answers must not rely on that, and one must not use both."""
    found = [set(re.findall(r"[A-Za-z]", _COMMAND.sub(" ", _formula(text)))) for text in (candidate, gold)]
    letters = found[0] | found[1]
    return any(letter.swapcase() in letters for letter in letters)


def _agree(a: Any, b: Any) -> bool:
    """Whether two formulas have the same value to 30 digits at each of several points where both have one."""
    from sympy import Expr, MatrixBase

    if isinstance(a, MatrixBase) and isinstance(b, MatrixBase):
        return a.shape == b.shape and all(_agree(x, y) for x, y in zip(a, b, strict=True))
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        return bool(a == b)
    if a == b:
        return True
    verdicts = [_close(x, y) for x, y in _values(a, b)]
    return bool(verdicts) and all(verdicts)


def _values(a: Expr, b: Expr) -> list[tuple[Any, Any]]:
    """Values of both at fixed rational points, 50 digits each; points where one of them has none are left out."""
    from sympy import Rational

    symbols: list[Basic] = sorted(a.free_symbols | b.free_symbols, key=str)
    found = []
    for k in range(3 if symbols else 1):
        point = {s: Rational(7 * i + 11 * k + 5, 3 * i + 2 * k + 4) for i, s in enumerate(symbols)}
        pair = tuple(side.subs(point).doit().evalf(50) for side in (a, b))
        if all(value.is_number and value.is_finite for value in pair):
            found.append(pair)
    return found


def _close(x: Any, y: Any) -> bool:
    return bool(abs(x - y) <= max(abs(x), abs(y)) * 10**-30)


def _same_relation(a: Any, b: Any) -> bool:
    """Whether two equations or inequalities are one: one difference of sides is a constant times the other."""
    from sympy import And, Eq, Ne, simplify
    from sympy.core.relational import Relational

    if isinstance(a, And) and isinstance(b, And):
        left, right = (getattr(side, "_unsorted_args", side.args) for side in (a, b))
        return len(left) == len(right) and all(_same_relation(x, y) for x, y in zip(left, right, strict=True))
    if not isinstance(a, Relational) or not isinstance(b, Relational):
        return False
    try:
        ratio = simplify((a.lhs - a.rhs) / (b.lhs - b.rhs))
    except TypeError:  # a set on one side
        return bool(a == b)
    if not ratio.is_number or not ratio.is_finite or ratio.is_zero is not False:
        return False
    if isinstance(a, Eq | Ne):
        return type(a) is type(b)
    same_way = type(a) is type(b) and ratio.is_positive
    return bool(same_way or (type(a) is type(b.reversed) and ratio.is_negative))

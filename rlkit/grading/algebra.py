"""Whether two formulas are the same: math-verify's verdict, confirmed by values at several points to 30 digits.

This may take long or use much memory: `grader` runs it in worker processes (`bounded`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlkit.grading.equality import COMMAND, plain_formula

if TYPE_CHECKING:
    from sympy import Basic, Expr


@lru_cache(maxsize=1024)
def parse(text: str) -> Any:
    """A formula as a SymPy object with exact numbers, or None where math-verify's parser cannot read it."""
    from latex2sympy2_extended.latex2sympy2 import NormalizationConfig, latex2sympy, normalize_latex
    from math_verify.grader import should_treat_as_complex
    from sympy import Float, Rational

    config = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
    normal = normalize_latex(plain_formula(text), config)
    try:
        tree = latex2sympy(normal, is_real=not should_treat_as_complex(normal), normalization_config=None)
        floats = tree.atoms(Float)
        return tree.xreplace({f: Rational(str(f)) for f in floats}) if floats else tree
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
    found = [set(re.findall(r"[A-Za-z]", COMMAND.sub(" ", plain_formula(text)))) for text in (candidate, gold)]
    letters = found[0] | found[1]
    return any(letter.swapcase() in letters for letter in letters)


def _agree(a: Any, b: Any) -> bool:
    """Whether two formulas have the same value to 120 digits at each of several points where both have one."""
    from sympy import Expr, MatrixBase
    from sympy.logic.boolalg import BooleanAtom

    if isinstance(a, MatrixBase) and isinstance(b, MatrixBase):
        return a.shape == b.shape and all(_agree(x, y) for x, y in zip(a, b, strict=True))
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        # Two false inequalities are the same sympy object, and not the same answer.
        return not isinstance(a, BooleanAtom) and bool(a == b)
    if a == b:
        return True
    verdicts = [_close(x, y) for x, y in _values(a, b)]
    return bool(verdicts) and all(verdicts)


def _values(a: Expr, b: Expr) -> list[tuple[Any, Any]]:
    """Values of both at fixed rational points, 150 digits each; points where one of them has none are left out."""
    from sympy import Rational

    symbols: list[Basic] = sorted(a.free_symbols | b.free_symbols, key=str)
    found = []
    for k in range(2 if symbols else 1):
        point = {s: Rational(7 * i + 11 * k + 5, 3 * i + 2 * k + 4) for i, s in enumerate(symbols)}
        pair = tuple(side.subs(point).doit().evalf(150) for side in (a, b))
        if all(value.is_number and value.is_finite for value in pair):
            found.append(pair)
    return found


def _close(x: Any, y: Any) -> bool:
    return bool(abs(x - y) <= max(abs(x), abs(y)) * 10**-120)


def _same_relation(a: Any, b: Any) -> bool:
    """Whether two equations or inequalities are one: one difference of sides is a constant times the other."""
    from sympy import And, Eq, Ne, simplify
    from sympy.core.relational import Relational

    if isinstance(a, And) and isinstance(b, And):
        left, right = (getattr(side, "_unsorted_args", side.args) for side in (a, b))
        return len(left) == len(right) and all(_same_relation(x, y) for x, y in zip(left, right, strict=True))
    if not (a.free_symbols | b.free_symbols):  # 3 < 4 and 1 < 2 differ by a factor of 1, and are not one answer
        return False
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

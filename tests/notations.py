"""Hypothesis strategies: one number written in many ways, and formulas with the cuts that a length limit makes."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import strategies as st

UNITS = [
    "",
    " dollars",
    " apples",
    r"\text{ cm}",
    r" \text{ square feet}",
    " miles per hour",
    r"\mathrm{~kg}",
    r"^\circ",
]


def grouped(digits: str, comma: str) -> str:
    """`1234567` -> `1,234,567`."""
    head = len(digits) % 3 or 3
    return comma.join([digits[:head], *(digits[i : i + 3] for i in range(head, len(digits), 3))])


@st.composite
def decimal_notation(draw, value: Fraction) -> str:
    """A number whose denominator divides a power of ten, as a decimal."""
    places = next(k for k in range(20) if 10**k % value.denominator == 0)
    digits = str(abs(value) * 10**places).zfill(places + 1)
    whole, part = (digits[:-places], digits[-places:]) if places else (digits, "")
    comma = draw(st.sampled_from(["", ",", "{,}", r",\!", r"\,"]))
    whole = grouped(whole, comma) if len(whole) > 3 else whole
    part += "0" * draw(st.integers(0, 2))
    if not part:
        return whole + draw(st.sampled_from(["", "."]))
    return (whole if whole != "0" or draw(st.booleans()) else "") + "." + part


@st.composite
def fraction_notation(draw, value: Fraction) -> str:
    """A positive number as a fraction or a mixed number."""
    factor = draw(st.integers(1, 3))
    above, below = value.numerator * factor, value.denominator * factor
    command = draw(st.sampled_from([r"\frac", r"\dfrac", r"\tfrac"]))
    shapes = [f"{above}/{below}", f"{command}{{{above}}}{{{below}}}", f"{command} {{ {above} }} {{{below}}}"]
    if above < 10 and below < 10:
        shapes.append(f"{command}{above}{below}")
    whole, rest = divmod(above, below)
    if whole and rest:
        shapes += [f"{whole}{command}{{{rest}}}{{{below}}}", f"{whole} {rest}/{below}"]
    return draw(st.sampled_from(shapes))


@st.composite
def notation(draw, value: Fraction, percent: bool = False, units: bool = True) -> str:
    """Any way in which people write this number as an answer."""
    size = abs(value)
    forms = [fraction_notation(size)]
    if all(p in (2, 5) for p in _primes(size.denominator)):
        forms.append(decimal_notation(size))
    if size.denominator == 1 and size and size % 10 == 0:
        zeros = len(str(size)) - len(str(size).rstrip("0"))
        forms.append(st.just(rf"{size / 10**zeros} \times 10^{{{zeros}}}"))
    text = draw(st.one_of(forms))
    unit = draw(st.sampled_from(UNITS)) if units else ""
    if percent and draw(st.booleans()):
        text, unit = draw(decimal_notation(size * 100)), draw(st.sampled_from([r"\%", "%", " percent"]))
    elif units and not unit and draw(st.booleans()):
        text = draw(st.sampled_from([r"\$", "$"])) + text if "/" not in text and "frac" not in text else text
    sign = "-" if value < 0 else draw(st.sampled_from(["", "", "+"]))
    # In round brackets a comma separates: (1,200) is a point.
    ends = [] if text.endswith(".") else ["{}."]
    dollars = [] if "$" in text.replace(r"\$", "") else ["${}$"]
    brackets = [] if "," in text else [r"\left({}\right)", "({})"]
    wrap = draw(st.sampled_from(["{}", "{}", "{{{}}}", "x = {}", " {} ", *ends, *brackets, *dollars]))
    return wrap.format(f"{sign}{text}{unit}")


def _primes(number: int) -> list[int]:
    found, p = [], 2
    while number > 1:
        while number % p == 0:
            found.append(p)
            number //= p
        p += 1
    return found


def box(answer: str) -> str:
    """As a model writes its answer."""
    return rf"So the answer is \boxed{{{answer}}}."


whole_numbers = st.integers(-(10**7), 10**7).map(Fraction)
decimals = st.builds(lambda n, k: Fraction(n, 10**k), st.integers(-(10**7), 10**7), st.integers(0, 4))
fractions = st.builds(Fraction, st.integers(-200, 200), st.integers(1, 60))
numbers = st.one_of(whole_numbers, decimals, fractions)


def _joined(parts: tuple[str, str]) -> list[str]:
    a, b = parts
    return [rf"\frac{{{a}}}{{{b}}}", rf"{a} + {b}", rf"\left({a}\right)^{{{b}}}", rf"\sqrt{{{a}}}", rf"\{{{a}, {b}\}}"]


leaves = st.sampled_from(["1", "2", "17", "x", r"\pi", "0.5", r"\text{cm}", "3x", r"\sqrt{13}", "n"])
latex = st.recursive(leaves, lambda inner: st.tuples(inner, inner).map(_joined).flatmap(st.sampled_from), max_leaves=6)


def _term(parts: tuple[tuple[str, float], tuple[str, float], str]) -> tuple[str, float]:
    (a, x), (b, y), shape = parts
    return {
        "sum": (rf"{a} + {b}", x + y),
        "product": (rf"\left({a}\right) \cdot \left({b}\right)", x * y),
        "quotient": (rf"\frac{{{a}}}{{{b}}}", x / y),
        "root": (rf"\sqrt{{{a}}}", math.sqrt(x)),
        "square": (rf"\left({a}\right)^{{2}}", x * x),
    }[shape]


_atoms = st.sampled_from(
    [("2", 2.0), ("3", 3.0), ("5", 5.0), ("0.5", 0.5), (r"\pi", math.pi), (r"\sqrt{2}", math.sqrt(2))]
)
_shapes = st.sampled_from(["sum", "product", "quotient", "root", "square"])
terms = st.recursive(_atoms, lambda inner: st.tuples(inner, inner, _shapes).map(_term), max_leaves=5)
"""Positive formulas as LaTeX with their values."""

"""Numbers and units in a tidy answer, read exactly or not at all.

Left out on purpose: unit conversion, numbers in words, decimal commas, digits with a base.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

# --- numbers -------------------------------------------------------------------------------------------------------

_DECIMAL = r"(?:[0-9]{1,3}(?:[, ][0-9]{3})+(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?) ?(?:"
    rf"(?P<power>{_DECIMAL}) ?(?:\\times|\\cdot|\*) ?10 ?\^ ?(?:\{{ ?(?P<e1>[-+]?[0-9]{{1,3}}) ?\}}|(?P<e2>[0-9]))"
    rf"|(?P<float>[0-9]+(?:\.[0-9]+)?)[eE](?P<e3>[-+]?[0-9]{{1,3}})"
    rf"|(?P<fixed>[0-9]*\.[0-9]*)\\(?:overline|bar) ?\{{ ?(?P<repeat>[0-9]+) ?\}}"
    rf"|(?:(?P<whole>[0-9]+) ?)?\\frac ?(?:\{{ ?(?P<n1>[-+]?) ?(?P<n>{_DECIMAL}) ?\}}|(?P<n2>[0-9])) ?"
    rf"(?:\{{ ?(?P<d1>[-+]?) ?(?P<d>{_DECIMAL}) ?\}}|(?P<d2>[0-9]))"
    rf"|(?:(?P<whole2>[0-9]+) )?(?P<over>{_DECIMAL}) ?/ ?(?P<under>{_DECIMAL})"
    rf"|(?P<decimal>{_DECIMAL}))"
)


def number(text: str) -> Fraction | None:
    """The number that a tidy text is, exactly; None where it is not a plain number.

    Integers, decimals, thousands (`1,000`, `1 000`), fractions, mixed numbers, powers of ten, repeating decimals.
    """
    if len(text) > 400:  # longer ones cost time and are nobody's answer
        return None
    match = _NUMBER.fullmatch(text)
    if not match:
        return None
    try:
        value = _value({k: v for k, v in match.groupdict().items() if v is not None})
    except ZeroDivisionError:
        return None
    return -value if match["sign"] == "-" else value


def _plain(digits: str) -> Fraction:
    return Fraction(re.sub("[, ]", "", digits).rstrip("."))


def _value(part: dict[str, str]) -> Fraction:
    """The number without its sign, from the named groups of `_NUMBER`."""
    if "power" in part:
        return _plain(part["power"]) * Fraction(10) ** int(part.get("e1") or part["e2"])
    if "float" in part:
        return Fraction(part["float"]) * Fraction(10) ** int(part["e3"])
    if "repeat" in part:
        whole, fixed = part["fixed"].split(".")
        head = Fraction(int(whole or "0")) + Fraction(int(fixed or "0"), 10 ** len(fixed))
        return head + Fraction(int(part["repeat"]), (10 ** len(part["repeat"]) - 1) * 10 ** len(fixed))
    if "decimal" in part:
        return _plain(part["decimal"])
    if "over" in part:
        return int(part.get("whole2", "0")) + _plain(part["over"]) / _plain(part["under"])
    above, below = _plain(part.get("n") or part["n2"]), _plain(part.get("d") or part["d2"])
    sign = -1 if (part.get("n1") == "-") != (part.get("d1") == "-") else 1
    if "whole" in part and sign < 0:
        raise ZeroDivisionError  # "2\frac{-1}{2}" is no mixed number
    return int(part.get("whole", "0")) + sign * above / below


# --- units ---------------------------------------------------------------------------------------------------------

_SAME_UNIT = {
    "dollar": "$", "usd": "$", "euro": "€", "eur": "€", "pound sterling": "£",
    "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km", "kilometre": "km",
    "millimeter": "mm", "millimetre": "mm", "milliliter": "ml", "liter": "l", "litre": "l",
    "gram": "g", "kilogram": "kg",
    "inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "pound": "lb", "ounce": "oz",
    "second": "s", "sec": "s", "minute": "min", "hour": "h", "hr": "h", "deg": "degree", "^circ": "degree",
    "mile per hour": "mph", "square unit": "unit^2", "sq unit": "unit^2", "cubic unit": "unit^3",
}  # fmt: skip
_SHORT_UNITS = frozenset(
    re.findall(r"\w+", "cm mm km kg mg ml ft in yd mi lb lbs oz hr hrs min mins sec mph kph deg usd eur")
)
# Words of fewer than four letters that are units inside \\text{}; one letter only in lower case: 5 M is 5 million.
_TEXT_UNITS = _SHORT_UNITS | frozenset(
    re.findall(
        r"\w+", "m s g l h mol rad hz pa kw kj ha ton day men man cup pie egg box pen car bus boy cat dog toy hat bag"
    )
)
_JOINERS = frozenset({"per", "of", "in", "the", "a", "sq", "to"})
# Words that change what the number means: dropping them could make a wrong answer right.
_WORDS_THAT_COUNT = """
    hundred thousand million billion trillion dozen half halves third quarter fourth fifth sixth seventh eighth ninth
    tenth hundredth thousandth percent pct percentage score pair couple double triple twice times squared cubed root
    factorial negative minus plus and or not no nor none than least most more less fewer about around approximately
    roughly almost over under above below between mod modulo base remainder infinity infinite undefined zero one
    two three four five six seven eight nine ten eleven twelve am pm bc ad ce bce dot is are was if when for where
    with without except by pi
    grand lakh crore gross binary hex octal decimal wrong false true inverse reciprocal mn bn
    sin cos tan cot sec csc log ln exp sqrt frac theta alpha beta gamma delta lambda sigma omega phi max gcd lcm
"""
NO_UNITS = frozenset(word + end for word in re.findall(r"\w+", _WORDS_THAT_COUNT) for end in ("", "s"))
_CURRENCY = re.compile(r"([-+]?) ?(\\\$|[$€£¥₹]) ?(?=[-0-9.])")
_ANGLE = re.compile(r"sin|cos|tan|cot|sec|csc|cis")
_PERCENT = re.compile(r" ?(?:\\?%| percent| per cent|\\text ?\{ ?(?:percent|per cent|\\?%) ?\})$")
_TEXT_UNIT = re.compile(r" ?(/?) ?\\text ?\{([^{}\\]*)\}(?: ?\^ ?\{? ?(-?[0-9]) ?\}?)?$")
_PLAIN_UNIT = re.compile(r"(?<=[0-9}\]).])( ?)([A-Za-z][A-Za-z .]*?)(?:\^\{?([23])\}?)?$")


@dataclass(frozen=True)
class Quantity:
    """A tidy answer without its unit."""

    body: str
    unit: str = ""
    """In one way of writing; empty without one."""
    percent: bool = False


def quantity(text: str) -> Quantity:
    """Take unit, currency sign or percent sign off a tidy answer; where that is unsafe the text stays whole."""
    percent = _PERCENT.search(text)
    if percent and percent.start():
        return Quantity(text[: percent.start()].strip(), percent=True)
    money = _CURRENCY.match(text)
    if money:
        return Quantity(money[1] + text[money.end() :], {"\\$": "$"}.get(money[2], money[2]))
    units: list[str] = []
    body = text
    while match := _TEXT_UNIT.search(body):
        if not _is_unit(match[2], short=True):
            return Quantity(text)
        units.insert(0, match[1] + _unit_name(match[2]) + (f"^{match[3]}" if match[3] else ""))
        body = body[: match.start()].strip()
    if body.endswith(r"^\circ"):
        if _ANGLE.search(body):
            return Quantity(text)  # the degrees belong to the angle: \sin 30^\circ
        body, units = body[: -len(r"^\circ")].strip(), ["degree", *units]
    if not units and (match := _PLAIN_UNIT.search(body)) and _is_unit(match[2], short=False, glued=not match[1]):
        body, units = body[: match.start()].strip(), [_unit_name(match[2]) + (f"^{match[3]}" if match[3] else "")]
    return Quantity(body, " ".join(units)) if body and units else Quantity(text)


def _is_unit(text: str, short: bool, glued: bool = False) -> bool:
    """Whether words may be dropped behind a number: a known unit, or nouns. `5xy` and `5 million` are no such thing."""
    parts = text.replace(".", " ").replace("/", " ").casefold().split()
    if not parts or any(part in NO_UNITS or not part.isalpha() for part in parts):
        return False
    if glued:  # "5cm", never "5abcd"
        return len(parts) == 1 and parts[0] in _SHORT_UNITS
    if parts[0] in _JOINERS - _SHORT_UNITS or parts[-1] in _JOINERS - _SHORT_UNITS:
        return False
    known = _TEXT_UNITS if short else _SHORT_UNITS
    if any(len(part) == 1 and part.isupper() for part in text.replace(".", " ").replace("/", " ").split()):
        return False
    return all(len(part) >= 4 or part in known | _JOINERS for part in parts)


def _unit_name(text: str) -> str:
    parts = text.casefold().replace(".", " ").split()
    single = [p[:-1] if len(p) > 3 and p.endswith("s") and not p.endswith("ss") else p for p in parts]
    name = " ".join(single)
    for shape, power in (("square ", "^2"), ("sq ", "^2"), ("cubic ", "^3")):
        if name.startswith(shape) and name not in _SAME_UNIT:
            rest = name[len(shape) :]
            return _SAME_UNIT.get(rest, rest) + power
    return _SAME_UNIT.get(name, name)

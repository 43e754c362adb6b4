r"""Answers in text: where a completion states its answer, and what the pieces of that answer are.

String work in linear time: nothing is evaluated, and nothing is guessed. What cannot be read with certainty stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rlkit.grading.quantities import number, quantity

LONGEST = 1000
"""Characters: a longer answer is compared as text only."""
DEEPEST = 20
"""Brackets within brackets: a deeper answer is compared as text only."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_WORD = re.compile(r"[^\s$]*")
_HASH = re.compile(r"####[ \t]*([^\n]*)")
_NUMERAL = r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_HASH_NUMBER = re.compile(rf"(\\?[$€£¥]?\s*{_NUMERAL}(?:\s*\\?%)?)\**\s*(?:[.,;:)](?=\s|$)|$)(.*)")
_ANSWER_IS = re.compile(r"answer(?:\s+is|\s*[:=])\s*([^\n]{1,200})", re.IGNORECASE)
_LAST_NUMBER = re.compile(rf"(?<![\w.]){_NUMERAL}(?:\s*\\?%)?(?!\w)")


# --- where the answer stands ---------------------------------------------------------------------------------------


def closing(text: str, start: int) -> int:
    r"""Index of the brace that closes the one at `start`, or -1; `\{` and `\}` do not count."""
    level = 0
    for match in _BRACE.finditer(text, start):
        level += {"{": 1, "}": -1}.get(match[0], 0)
        if level == 0:
            return match.start()
    return -1


def boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}` that is not inside another one, or None where there is no box.

    An unfinished box, such as that of a completion that was cut off, gives "": nobody knows what it would have held.
    A box without braces holds what follows up to the next space.
    """
    found: str | None = None
    end = 0
    for match in _BOX.finditer(text):
        if match.start() < end:
            continue  # inside the box before it
        if text[match.end() : match.end() + 1] == "{":
            end = closing(text, match.end())
            if end < 0:
                return ""
            found = text[match.end() + 1 : end]
        else:
            found = _WORD.match(text, match.end())[0].rstrip(".,;")  # type: ignore[index]  # it matches "" at least
            end = match.end() + len(found)
    return None if found is None else _BOX.sub("", found)


def hashed(text: str) -> str | None:
    """What follows the last `####` (GSM8K); the number alone where words follow it behind a comma or a full stop."""
    lines = _HASH.findall(text)
    if not lines:
        return None
    line = lines[-1].strip().strip("*").strip()
    number = _HASH_NUMBER.fullmatch(line)
    # Another digit, a formula or a word such as "million" behind the number may change its meaning ("72, or 73"): then
    # the line is the answer.
    changes = number and (re.search(r"[0-9\\=^+/<>!]|(?<!\w)[A-Za-z](?!\w)", number[2]) or _counts(number[2]))
    return number[1] if number and not changes else line


def _counts(rest: str) -> bool:
    from rlkit.grading.quantities import NO_UNITS

    return any(word in NO_UNITS for word in re.findall(r"[a-z]+", rest.casefold()))


def marked(text: str) -> str | None:
    """The answer that a text marks as its final one: the last box, else the last `####`; None without a mark."""
    box = boxed(text)
    return hashed(text) if box is None else box


def said(text: str) -> str | None:
    """The answer of a text without marks: behind the last "answer is", else the last number. For lenient grading."""
    claims = _ANSWER_IS.findall(text)
    if claims:
        return re.split(r"\.(?:\s|$)|\s+because\b|\*\*", claims[-1].strip().strip("*:").strip())[0]
    numbers = _LAST_NUMBER.findall(text)
    return numbers[-1] if numbers else None


# --- one way of writing --------------------------------------------------------------------------------------------

_LETTERS = str.maketrans(
    {"−": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "≤": r"\le ", "≥": r"\ge ", "∞": r"\infty ", "π": r"\pi ",
     "°": r"^\circ ", "∪": r"\cup ", "\n": " ", "\t": " ", "\xa0": " ", "\u2009": " ", "\u202f": " "}
)  # fmt: skip
_REWRITES = [
    (re.compile(r"\{\s*,\s*\}|,\\!\s*"), ","),  # 1{,}000 and 1,\!000
    (re.compile(r"\\!"), ""),
    (re.compile(r"(?<!\\)\\[,;:> ]|~|\\q?quad(?![A-Za-z])|\\thinspace(?![A-Za-z])"), " "),
    (re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\s*\.?"), ""),
    (re.compile(r"\\displaystyle(?![A-Za-z])\s*"), ""),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\(?:math(?:rm|bf|it|sf)|text(?:bf|it|rm|sf|normal)|mbox|hbox|operatorname)\s*\{"), r"\\text{"),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\leq(?![A-Za-z])"), r"\\le"),
    (re.compile(r"\\geq(?![A-Za-z])"), r"\\ge"),
    (re.compile(r"\\degree(?![A-Za-z])|\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])"), r"^\\circ"),
    (re.compile(r"\s+"), " "),
]  # fmt: skip
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"))


def tidy(text: str) -> str:
    """An answer in one way of writing: no dollar signs around it, no spacing commands, one kind of fraction."""
    text = text.translate(_LETTERS).strip()
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    text = text.strip()
    while True:
        inner = _unwrapped(text)
        if inner == text:
            return text
        text = inner


def _unwrapped(text: str) -> str:
    text = text.strip()
    if text.endswith(".") and not text.endswith(".."):
        return text[:-1]
    for opening, end in _WRAPPERS:
        if text.startswith(opening) and text.endswith(end) and len(text) >= len(opening) + len(end):
            inner = text[len(opening) : len(text) - len(end)]
            if opening not in inner.replace("\\$", "") and not inner.endswith("\\"):
                return inner
    whole = _TEXT.fullmatch(text)
    if whole:
        return whole[1]
    if text.startswith("{") and closing(text, 0) == len(text) - 1:
        return text[1:-1]
    return text


def squeezed(text: str) -> str:
    r"""Without the spaces that do not matter: one between two digits does (`1 1/2`), and one in `\pi r`."""
    return re.sub(r"(?<![0-9]) | (?![0-9])", "", re.sub(r"(\\[A-Za-z]+) (?=[A-Za-z])", r"\1\\ ", text))


def words(text: str) -> str:
    r"""An answer as words: `\text{Even}.` -> `even`, `(C)` -> `c`. Mixed case is kept: `AbC` may name points."""
    plain = re.sub(r"\\text\s*", "", text).translate({ord(c): None for c in "{}$\\"})
    plain = re.sub(r"\s+", " ", plain).strip().rstrip(".").strip()
    plain = plain.casefold() if plain in (plain.upper(), plain.lower(), plain.title(), plain.capitalize()) else plain
    return plain[1:-1].strip() if re.fullmatch(r"\(\s*\w\s*\)", plain) else plain


# --- lists ---------------------------------------------------------------------------------------------------------

_PAIRS = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\langle": r"\rangle"}
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)


@dataclass(frozen=True)
class Parts:
    """A list, tuple, interval, set or union."""

    kind: str
    """`list` (no brackets), the two brackets, or `union`."""
    items: tuple[str, ...]


def depth(text: str) -> int:
    """How deep brackets stand within brackets."""
    deepest = level = 0
    for letter in text:
        level += letter in "([{"
        deepest = max(deepest, level)
        level -= letter in ")]}"
    return deepest


def balanced(text: str) -> bool:
    """Whether each bracket of a formula is closed by its own kind."""
    waiting = []
    for match in _TOKEN.finditer(text):
        if match[0] in _PAIRS:
            waiting.append(_PAIRS[match[0]])
        elif match[0] in _PAIRS.values() and (not waiting or waiting.pop() != match[0]):
            return False
    return not waiting


def parts(text: str) -> Parts | None:
    """The items of a tidy answer that is a list or a union of sets; None for anything else."""
    unions = _split(text, {r"\cup"})
    if len(unions) > 1:
        return Parts("union", tuple(unions))
    if number(quantity(text).body) is not None:
        return None  # 1,000 is one number
    items = _split(re.sub(r",? ?(?:\\text ?\{ ?(?:and|or) ?\}| and | or )", ",", text), {",", ";"})
    if len(items) > 1:
        return Parts("list", tuple(items))
    wrapped = _brackets(text)
    if not wrapped:
        return None
    kind, inner = wrapped
    items = _split(inner, {",", ";"})
    if len(items) > 1 or kind == r"\{\}":
        return Parts(kind, tuple(item for item in items if item or len(items) > 1))
    return None


def without_brackets(text: str) -> str:
    """`(5)` -> `5`: round brackets around a whole answer mean nothing unless there is a comma inside."""
    while (wrapped := _brackets(text)) and wrapped[0] == "()" and len(_split(wrapped[1], {",", ";"})) == 1:
        text = wrapped[1].strip()
    return text


def _levels(text: str) -> Iterator[tuple[str, int, int]]:
    """(token, its start, depth before it); an opening bracket counts from the next token on, a closing one at once."""
    level = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _PAIRS.values():
            level -= 1
        yield token, match.start(), level
        if token in _PAIRS:
            level += 1


def _split(text: str, separators: set[str]) -> list[str]:
    cuts = [(start, start + len(token)) for token, start, level in _levels(text) if level == 0 and token in separators]
    ends = [*(start for start, _ in cuts), len(text)]
    return [text[start:end].strip() for start, end in zip([0, *(stop for _, stop in cuts)], ends, strict=True)]


def _brackets(text: str) -> tuple[str, str] | None:
    """Both brackets and what is inside, where one pair holds the whole text. `[1,2)` is such a pair too."""
    tokens = [(token, start, level) for token, start, level in _levels(text)]
    if len(tokens) < 2 or tokens[0][0] not in ("(", "[", r"\{", r"\langle"):
        return None
    first, (last, start, level) = tokens[0][0], tokens[-1]
    if level != 0 or last not in (")", "]", r"\}", r"\rangle") or any(lv < 1 for _, _, lv in tokens[1:-1]):
        return None
    return first + last, text[len(first) : start].strip()

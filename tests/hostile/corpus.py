"""Texts that a model or a data set may hold and that mean something to a page, a terminal, a parser or a table."""

from __future__ import annotations

from hypothesis import strategies as st

MEGABYTE = 1_000_000
MARKUP = {
    "script": "<script>alert(1)</script>",
    "unclosed": "</td></table></div><img src=x onerror=alert(1)",
    "attribute": '" onmouseover="alert(1)" x="',
    "single quotes": "' onfocus='alert(1)' autofocus '",
    "textarea": "</textarea><script>alert(1)</script>",
    "style": "</style><style>*{display:none}</style>",
    "title": "</title><svg/onload=alert(1)>",
    "comment": "<!-- --><b>x</b><!--",
    "cdata": "<![CDATA[<script>alert(1)</script>]]>",
    "entity": "&lt;script&gt;&#60;script&#62;&amp;lt;",
    "address": "<a href=javascript:alert(1)>x</a>",
    "template": "{{ 7*7 }}{% raw %}${7*7}#{7*7}",
    "markdown link": "[x](javascript:alert(1)) ![x](http://example.org/x.png)",
    "formula with a link": r"$\href{javascript:alert(1)}{x}$ $$\require{html}$$",
    "mathtext": r"$\frac{1}{$ $_^",
}
CONTROL = {
    "colour": "\x1b[31mred\x1b[0m",
    "title of a terminal": "\x1b]0;owned\x07",
    "link of a terminal": "\x1b]8;;http://example.org\x1b\\x\x1b]8;;\x1b\\",
    "clear screen, 8 bit": "\x9b2J",
    "null": "a\x00b",
    "backspaces": "secret\b\b\b\b\b\bpublic",
    "carriage return": "right\rwrong",
    "bidi override": "\u202e7 si rewsna\u202c",
    "bidi isolate": "\u2067abc\u2069",
    "zero width": "4\u200b2\u200d\ufeff",
    "line separators": "a\u2028b\u2029c\x85d",
    "lone surrogate": "a\ud800b\udfff",
    "combining marks": "a" + "\u0301" * 500,
    "not a character": "\ufffe\uffff",
}
NUMBERS = {
    "power tower": "9**9**9**9",
    "huge power": r"\boxed{10^{10^{10}}}",
    "factorial": r"\boxed{99999999!}",
    "full width digits": "\uff14\uff12",
    "arabic digits": "\u0664\u0662",
    "superscripts": "4\u00b2",
    "homoglyphs": "\u0417\u041e",  # letters that look like 3 and 0
    "roman": "\u216b",
    "infinite": "inf nan -inf 1e999",
    "hexadecimal": "0x2a 0b101010 4_2",
}
NESTED = {
    "braces": "{" * 20_000 + "}" * 20_000,
    "parentheses": r"\boxed{" + "(" * 5_000 + "1" + ")" * 5_000 + "}",
    "fractions": r"\boxed{" + r"\frac{1}{" * 2_000 + "1" + "}" * 2_000 + "}",
    "roots": r"\boxed{" + r"\sqrt{" * 2_000 + "1" + "}" * 2_000 + "}",
    "boxes": r"\boxed{" * 5_000 + "1" + "}" * 5_000,
    "boxes that stay open": r"\boxed{" * 20_000,
}
LONG = {
    "one letter": "x" * MEGABYTE,
    "digits": "7" * MEGABYTE,
    "marks of an answer": "####" * (MEGABYTE // 4),
    "lines": "\n" * MEGABYTE,
    "backslashes": "\\" * MEGABYTE,
    "dollars": "$" * MEGABYTE,
}
FORMULAS_OF_TABLES = {
    "equals": "=1+1",
    "command": "=cmd|' /C calc'!A0",
    "plus": "+1+1",
    "minus": "-1+1",
    "at": "@SUM(1)",
}
CORPUS = {
    f"{kind}, {name}": text
    for kind, texts in {
        "markup": MARKUP,
        "control": CONTROL,
        "numbers": NUMBERS,
        "nested": NESTED,
        "long": LONG,
        "tables": FORMULAS_OF_TABLES,
    }.items()
    for name, text in texts.items()
}

texts = st.one_of(
    st.text(st.characters(), max_size=80),
    st.lists(st.sampled_from([text for text in CORPUS.values() if len(text) < 200]), max_size=4).map("".join),
    st.text(r"\{}[]()$#=+-*/^_!%&<>'\"`0123456789 boxedfracsqrt", max_size=120),
)
"""Any characters, lone surrogates among them; pieces of the corpus in a row; formulas that went wrong."""

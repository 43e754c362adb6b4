"""Speed and rightness of the grader beside math-verify and TRL's accuracy reward."""

from __future__ import annotations

import csv
import logging
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.readme import Report
from rlkit.grading import grade, grade_batch

HERE = Path(__file__).resolve().parent
FORMULAS = [
    (r"\frac{3\sqrt{3}}{4}", r"\frac{3}{4}\sqrt{3}"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi/2)"),
    ("x^3 + 3x - 6", "3x + x^3 - 6"),
    (r"(-\infty,2) \cup (3,\infty)", r"(-\infty, 2)\cup(3, \infty)"),
    (r"6 - 5i", "-5i + 6"),
    (r"\frac{14}{3}", r"4\frac{2}{3}"),
    (r"1+2\sqrt{3}", r"2\sqrt3 + 1"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ("y = 2x + 3", "y=3+2x"),
    (r"90^\circ", "90"),
    (r"\text{Evelyn}", "Evelyn"),
    ("p - q", "-q + p"),
    (r"\$32,\!348", "32348"),
    (r"50\%", "50"),
    ("x < -3", "-3 > x"),
    (r"\sqrt{51}", r"\sqrt{51}"),
]
WRONG = [
    ("4210", "4210_7"), (r"10^{-20}", "0"), ("dog", "god"), ("x^2=-1", "x^2=-4"), (r"2\pi R", r"2\pi r"), ("5m", "5"),
    (r"\sin 30", r"\sin 30^\circ"), ("x^2=9", "9"), ("5x", "x5y"), ("(1,2)", r"\{1,2\}"), (r"0.0000001", "0"),
    ("3", r"3\sqrt{13}"),
]  # fmt: skip


def typical(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Completions and golds as in training: 60 % numbers, 40 % formulas of a few kinds; half the answers are wrong."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        right = rng.random() < 0.5
        if rng.random() < 0.6:
            gold = rng.randrange(20000)
            said = gold if right else gold + rng.choice([-10, -1, 1, 7])
            shown = rng.choice([f"{said}", f"{said:,}", rf"\${said}", f"{said}.00", f"{said} apples"])
            rows.append(
                (
                    rf"We add, then halve: {said} * 2 / 2 = {said}. It is $\boxed{{{shown}}}$.",
                    str(gold),
                )
            )
        else:
            answer, other = rng.choice(FORMULAS)
            k = rng.randrange(2, 60)
            said = other if right else f"{k} + {other}" if other[-1].isalnum() else f"{other[:-1]}{k}{other[-1]}"
            rows.append((rf"We simplify and get \[ \boxed{{{said}}} \]", answer))
    return rows


def alone(rows: list[tuple[str, str]]) -> list[float]:
    """math-verify as its documentation uses it, and as TRL calls it."""
    from math_verify import parse, verify

    return [float(verify(parse(f"${gold}$"), parse(text))) for text, gold in rows]


Cost = tuple[float, float]
"""Seconds on the clock, and CPU seconds of this process and its workers."""


def cost(function: Callable[[], Any]) -> Cost:
    """What a call takes."""
    clock, cpu = time.perf_counter(), used()
    function()
    return time.perf_counter() - clock, used() - cpu


def used() -> float:
    """CPU seconds so far."""
    me = psutil.Process()
    return sum(t.user + t.system for t in (p.cpu_times() for p in (me, *me.children(recursive=True))))


def best_of(function: Callable[[list[tuple[str, str]]], Any], size: int, times: int) -> Cost:
    """The smallest of several costs, with new rows each time, so that no cache helps."""
    costs = [cost(partial(function, typical(size, seed))) for seed in range(1, times + 1)]
    return min(clock for clock, _ in costs), min(cpu for _, cpu in costs)


def ours(rows: list[tuple[str, str]]) -> list[float | None]:
    """The grader."""
    return list(grade_batch([text for text, _ in rows], [gold for _, gold in rows]))


def speed(times: int) -> list[tuple[str, str]]:
    """Seconds for 1,000 answers."""
    first = cost(lambda: grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}"))
    alone(typical(50))
    golds = [rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}" for a in range(1, 11) for b in range(11, 21) for c in range(21, 31)]
    different = [(rf"\boxed{{{gold} + x - x}}", gold) for gold in golds]
    many = [(rf"\boxed{{{i}\sqrt{{2}}}}", rf"{i}\sqrt{{2}}") for i in range(10000)]
    theirs, own = best_of(alone, 1000, times), best_of(ours, 1000, times)
    theirs_all, own_all = cost(lambda: alone(different)), cost(lambda: ours(different))
    return [
        ("1,000 typical answers, math-verify", told(theirs)),
        ("1,000 typical answers, rlkit", told(own, theirs)),
        ("1,000 different formulas, all right, math-verify", told(theirs_all)),
        ("1,000 different formulas, all right, rlkit (2 workers)", told(own_all, theirs_all)),
        ("first formula (starts the workers)", f"{first[0]:.2f} s"),
        ("10,000 golds against themselves", f"{cost(lambda: ours(many))[0]:.2f} s"),
    ]


def told(own: Cost, theirs: Cost | None = None) -> str:
    """A cost as text, with its ratio to another."""
    ratio = f": {own[0] / theirs[0]:.2f} times, {own[1] / theirs[1]:.2f} times the CPU time" if theirs else ""
    return f"{own[0]:.2f} s, {own[1]:.2f} CPU s{ratio}"


def hostile() -> list[tuple[str, str]]:
    """The longest of the hostile answers of the tests."""
    from tests.test_grading import HOSTILE

    seconds = {}
    for kind, text in HOSTILE.items():
        started = time.perf_counter()
        grade(rf"\boxed{{{text}}}", r"\sqrt{2}x")
        seconds[kind] = time.perf_counter() - started
    worst = max(seconds, key=lambda kind: seconds[kind])
    return [(f"slowest of {len(seconds)} hostile answers ({worst})", f"{seconds[worst]:.2f} s")]


def rightness() -> list[tuple[str, str]]:
    """Wrong grades on the table of answers and on pairs that differ."""
    from trl.rewards import accuracy_reward

    path = HERE.parent / "tests" / "data" / "answers.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        cases = [row for row in csv.DictReader(lines) if not row["expected"].startswith("policy")]
    wanted = [float(row["expected"][0]) for row in cases]
    theirs = [accuracy_reward([[{"content": row["completion"]}]], [row["gold"]])[0] for row in cases]
    own = [grade(row["completion"], row["gold"]) for row in cases]
    missed = [sum(a != b for a, b in zip(found, wanted, strict=True)) for found in (theirs, own)]
    paid = [
        sum(alone([(rf"\boxed{{{answer}}}", gold)])[0] for answer, gold in WRONG),
        sum(grade(rf"\boxed{{{answer}}}", gold) or 0 for answer, gold in WRONG),
    ]
    return [
        (f"wrong grades in a table of {len(cases)} answers, TRL's accuracy_reward", str(missed[0])),
        (f"wrong grades in a table of {len(cases)} answers, rlkit", str(missed[1])),
        (f"{len(WRONG)} wrong answers that get 1.0, math-verify", f"{paid[0]:.0f}"),
        (f"{len(WRONG)} wrong answers that get 1.0, rlkit", f"{paid[1]:.0f}"),
    ]


def table(rows: list[tuple[str, str]]) -> str:
    """As Markdown."""
    return "\n".join(["| measured | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)])


def report(quick: bool) -> Report:
    """Measure."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    from rlkit.machine import machine_class

    where = ", ".join(str(value) for value in machine_class().values())
    found = speed(1 if quick else 3)
    text = f"On {where}; best of {1 if quick else 3}.\n\n{table([*found, *hostile(), *rightness()])}"
    return Report(text, [found[1]])

"""The grader: right grades by the kind of notation, and an end to every call."""

from __future__ import annotations

import csv
import multiprocessing
import os
import re
import signal
import threading
import time
from fractions import Fraction
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlkit
from rlkit.grading import grade, grade_batch, grader
from tests import notations as write

TABLE = list(csv.DictReader((Path(__file__).parent / "data" / "answers.csv").open(encoding="utf-8", newline="")))
quickly = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ROOT = r"\boxed{\frac{\sqrt2}{2}}", r"\frac{1}{\sqrt{2}}"
"""A pair that only a worker can settle."""
HOSTILE = {
    "tower": "9^{9^{9^{9}}}",
    "power": "2^{1000000}",
    "factorial": "1000000!",
    "factorials": "((20!)!)!",
    "binomial": r"\binom{99999999}{33333333}",
    "expansion": "((((x+1)^{99}+1)^{99}+1)^{99}+1)^{99}",
    "product": "*".join(f"(x+{i})^{{99}}" for i in range(60)),
    "sum": "1+" * 400 + "x",
    "roots": r"\sqrt{" * 18 + "x" + "}" * 18,
    "fractions": r"\frac{1}{1+" * 18 + "x" + "}" * 18,
    "brackets": "(" * 400 + "x" + ")" * 400,
    "braces": "{" * 100_000,
    "boxes": r"\boxed{" * 20_000 + "x" + "}" * 20_000,
    "digits": "9" * 100_000,
    "commas": "1," * 50_000,
    "exponentials": r"\exp(\exp(\exp(9)))",
    "floor": r"\lfloor 10^{9999}\pi\rfloor",
    "trigonometry": r"\sin(\cos(\tan(" * 6 + "x" + ")))" * 6,
    "letters": "abcdefghijklmnopqrstuvwxyz" * 30,
    "commands": r"\alpha" * 150,
}


# --- grades --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['completion']}~{row['gold']}")
def test_the_table_of_answers(row):
    wanted = re.search(r"default ([01])", row["expected"]) or re.match(r"([01])", row["expected"])
    assert grade(row["completion"], row["gold"]) == float(wanted[1])
    if "lenient" in row["expected"]:
        assert grade(row["completion"], row["gold"], strict=False) == 1.0


@quickly
@given(write.numbers.flatmap(lambda v: st.tuples(write.notation(v), write.notation(v, units=False))))
def test_one_number_in_two_notations_is_right(pair):
    assert grade(write.box(pair[0]), pair[1]) == 1.0


@quickly
@given(st.tuples(write.numbers, write.numbers).filter(lambda p: p[0] != p[1]).flatmap(lambda p: st.tuples(
    write.notation(p[0]), write.notation(p[1]))))  # fmt: skip
def test_two_numbers_in_any_notation_are_never_right(pair):
    assert grade(write.box(pair[0]), pair[1]) == 0.0


@quickly
@given(write.decimals.flatmap(lambda v: st.tuples(st.just(v), write.notation(v, percent=True))))
def test_percent_is_its_value_or_if_allowed_its_number(pair):
    value, text = pair
    assert grade(write.box(text), str(value), percent=False) == 1.0
    if "%" in text or "percent" in text:
        assert grade(write.box(text), str(value * 100)) == 1.0
        assert grade(write.box(text), str(value * 100), percent=False) == float(value == 0)


@quickly
@given(write.numbers, write.numbers.filter(bool))
def test_a_number_beside_a_factor_or_a_root_is_another(value, other):
    for text in (rf"{value}\sqrt{{13}}", f"{value}x", rf"{value}\pi", f"{value}_7", f"{value} million"):
        assert grade(write.box(text), str(value)) == 0.0 or value == 0
        assert grade(write.box(str(value)), text) == 0.0 or value == 0


@settings(max_examples=40, deadline=None)
@given(write.latex, st.data())
def test_a_completion_that_is_cut_is_never_right_before_its_box_is_closed(text, data):
    whole = rf"We get \boxed{{1}}, no: \boxed{{{text}}}"
    cut = data.draw(st.integers(whole.index(r"\boxed", 20) + len(r"\boxed{"), len(whole) - 1))
    for gold in (text, "1", "17", "x"):
        assert grade(whole[:cut], gold) == 0.0


@settings(max_examples=40, deadline=None)
@given(write.latex)
def test_every_formula_grades_itself(text):
    assert grade(rf"\boxed{{{text}}}", text) == 1.0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(write.terms, write.terms)
def test_formulas_are_right_exactly_where_their_values_agree(one, other):
    (text, value), (gold, gold_value) = one, other
    if abs(value - gold_value) > 1e-9:
        assert grade(write.box(text), gold) == 0.0
        assert grade(write.box(text), rf"{gold}x") == 0.0
    assert grade(write.box(rf"{gold} + {text}"), rf"{text} + {gold}") == 1.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ROOT,
        (r"\boxed{(x+1)^2}", "x^2+2x+1"),
        (r"\boxed{q + 2p}", "2p+q"),
        (r"\boxed{1.5x}", r"\frac{3x}{2}"),
        (r"\boxed{x=-2}", "2x+4=0"),
        (r"\boxed{2>x}", "x<2"),
        (r"\boxed{\cos^2 x}", r"1-\sin^2 x"),
        (r"\boxed{[-2,7]}", r"x \in [-2,7]"),
        (r"\boxed{(-\infty,2)\cup(3,\infty)}", r"(3,\infty) \cup (-\infty, 2)"),
        (r"\boxed{\{2,1\}}", r"\{1, 2\}"),
        (r"\boxed{3\pm\sqrt2}", r"3-\sqrt{2}, 3+\sqrt{2}"),
        (r"\boxed{(3,\pi/2)}", r"\left( 3, \frac{\pi}{2} \right)"),
        (r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}", r"\begin{pmatrix} 1 \\ \frac42 \end{pmatrix}"),
        (r"\boxed{120}", "5!"),
        (r"\boxed{3}", r"\log_2 8"),
        (r"\boxed{0.\overline{3}}", r"\frac13"),
        (r"\boxed{\text{(C)}}", "C"),
        (r"\boxed{Even.}", r"\text{even}"),
        (r"\boxed{\text{no}}", "No"),
        (r"\boxed{2^{10}}", "1024"),
        (r"\boxed{11,\! 111,\! 100}", "11111100"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"First \boxed{3}. Then \boxed{5}.", "5"),
        (r"\fbox{7}", "7"),
        (r"$\boxed 7$", "7"),
        ("so 3 * 4\n#### 12", "#### 12"),
        ("7", "7"),
        (r"$\frac{1}{2}$", "0.5"),
        (r"\boxed{60 mph}", r"60 \text{ miles per hour}"),
    ],
)
def test_right(answer, gold):
    assert grade(answer, gold) == 1.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"\boxed{dog}", "god"),
        (r"\boxed{no}", "on"),
        (r"\boxed{ABC}", "BCA"),
        (r"\boxed{4210}", "4210_7"),
        (r"\boxed{10^{-20}}", "0"),
        (r"\boxed{0.0000001}", "0"),
        (r"\boxed{0.333333}", r"\frac13"),
        (r"\boxed{3.14159265358979323846}", r"\pi"),
        (r"\boxed{x^2=-1}", "x^2=-4"),
        (r"\boxed{2\pi R}", r"2\pi r"),
        (r"\boxed{\log 2}", r"\ln 2"),
        (r"\boxed{\sin 30}", r"\sin 30^\circ"),
        (r"\boxed{x^2=9}", "9"),
        (r"\boxed{y=5}", "x=5"),
        (r"\boxed{y=1,x=2}", "1,2"),
        (r"\boxed{(1,2)}", "[1,2]"),
        (r"\boxed{(1,2]}", "(1,2)"),
        (r"\boxed{1,2}", r"\{1,2,3\}"),
        (r"\boxed{(2,1)}", "(1,2)"),
        (r"\boxed{1,200}", "(1,200)"),
        (r"\boxed{72, or 73}", "72"),
        ("#### 72, or 73", "72"),
        (r"\boxed{5 or more}", "5"),
        (r"\boxed{5 squared}", "5"),
        (r"\boxed{5 dozen}", "5"),
        (r"\boxed{5xy}", "5"),
        (r"\boxed{5m}", "5"),
        (r"\boxed{\$5}", r"5 \text{ euros}"),
        (r"\boxed{5 \text{ cm}^2}", r"5 \text{ cm}"),
        (r"\boxed{x<2}", "x>2"),
        (r"\boxed{x \le 2}", "x<2"),
        (r"\boxed{\sqrt{x^2}}", "x"),
        (r"\boxed{42} but rather \boxed{41}", "42"),
        (r"\boxed{1+\boxed{2}", "2"),
        ("<answer>42</answer> I think", "42"),
        ("It could be 42", "42"),
        (r"\boxed{\frac{1}{0}}", r"\frac{2}{0}"),
        (r"\boxed{2 3}", "5"),
        (r"\boxed{5'}", "5"),
        (r"\boxed{.3:2}", "3:2"),
        (r"\boxed{\cot_7 x}", r"\cot x"),
        (r"\boxed{\{\log_2 5}", r"\log_2 5"),
        (r"\boxed{\log_5 2}", r"\log_2 5"),
        (r"\boxed{AbC}", "ABC"),
        (r"\boxed{even}", "odd"),
        (r"\boxed{2}", "even"),
        (r"\boxed{__import__('os')}", "0"),
    ],
)
def test_wrong(answer, gold):
    assert grade(answer, gold) == 0.0


@pytest.mark.parametrize("gold", ["", "  ", None, float("nan"), r"\boxed{}", "#### "])
def test_an_empty_gold_is_unscorable(gold):
    assert grade(r"\boxed{5}", gold) is None


@pytest.mark.parametrize(
    ("answer", "gold", "flag"),
    [
        (r"\boxed{2,1}", "1,2", {"ordered": False}),
        ("The answer is 42.", "42", {"strict": False}),
        ("I get 5 and then 42", "42", {"strict": False}),
        (r"\boxed{(1,2)}", "1,2", {"strict": False}),
    ],
)
def test_flags_that_allow_more(answer, gold, flag):
    assert grade(answer, gold) == 0.0
    assert grade(answer, gold, **flag) == 1.0


@pytest.mark.parametrize(
    ("answer", "gold", "flag"), [(r"\boxed{50\%}", "50", {"percent": False}), (r"\boxed{5 cm}", "5", {"units": True})]
)
def test_flags_that_allow_less(answer, gold, flag):
    assert grade(answer, gold) == 1.0
    assert grade(answer, gold, **flag) == 0.0


def test_text_and_chat_messages_are_graded_alike():
    message = [{"role": "user", "content": r"\boxed{1}"}, {"role": "assistant", "content": r"\boxed{5}"}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": r"\boxed{5}"}]}]
    assert grade_batch([r"\boxed{5}", message, parts, []], ["5"] * 4) == [1.0, 1.0, 1.0, 0.0]


def test_a_batch_lists_what_to_look_at():
    grades = rlkit.grade_batch([r"\boxed{even}", r"\boxed{5}", "5", ROOT[0]], ["even", "", "5", ROOT[1]])
    assert grades == [1.0, None, 1.0, 1.0]
    assert (grades.as_text, grades.unscorable, grades.limited) == ([0], [1], [])


def test_a_batch_needs_one_gold_a_completion():
    with pytest.raises(ValueError):
        grade_batch(["1", "2"], ["1"])


def test_a_long_answer_is_compared_as_text():
    long = "1+" * 600 + "1"
    assert grade(rf"\boxed{{{long}}}", long) == 1.0
    assert grade(rf"\boxed{{{long}}}", "601") == 0.0


# --- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_ends_in_two_seconds(kind):
    grade(*ROOT)  # the workers are there
    started = time.perf_counter()
    assert grade(rf"\boxed{{{HOSTILE[kind]}}}", r"\sqrt{2}x") == 0.0
    assert time.perf_counter() - started < 2.0


def test_a_hostile_answer_is_counted_and_the_others_are_not_harmed():
    grades = grade_batch([ROOT[0], rf"\boxed{{{HOSTILE['expansion']}}}", ROOT[0]], [ROOT[1], "x+1", ROOT[1]])
    assert grades == [1.0, 0.0, 1.0]
    assert grades.limited == [1]


def test_memory_stays_below_a_gigabyte():
    """The tree of processes, sampled while an answer tries to fill the memory."""
    grade(*ROOT)
    before = psutil.Process().memory_info().rss
    highest, done = [0], threading.Event()

    def watch():
        while not done.wait(0.02):
            tree = [p for child in psutil.Process().children() for p in [child, *child.children(recursive=True)]]
            highest[0] = max([highest[0], *(_rss(p) for p in tree)])

    thread = threading.Thread(target=watch)
    thread.start()
    for kind in ("product", "factorials", "binomial", "expansion"):
        assert grade(rf"\boxed{{{HOSTILE[kind]}}}", "x+1") == 0.0
    done.set()
    thread.join()
    assert highest[0] < 2**30
    assert psutil.Process().memory_info().rss - before < 2**28


def _rss(process):
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def test_a_grader_in_threads():
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(grade_batch([ROOT[0], "7"], [ROOT[1], "7"]))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [[1.0, 1.0]] * 4


def test_a_grader_in_a_worker_of_joblib():
    from joblib import Parallel, delayed

    assert Parallel(n_jobs=2)(delayed(grade)(*ROOT) for _ in range(2)) == [1.0, 1.0]


def test_a_grader_in_a_daemonic_worker():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(grade, ROOT) == 1.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_grader_after_a_fork():
    grade(*ROOT)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(grade, ROOT).get(30) == 1.0
    assert grade(*ROOT) == 1.0


@pytest.mark.parametrize("whom", ["helper", "workers", "all"])
def test_a_grader_after_a_kill_of_its_worker(whom):
    grade(*ROOT)
    helper = psutil.Process(grader._WORKERS._helper._process.pid)
    workers = helper.children(recursive=True)
    for process in {"helper": [helper], "workers": workers, "all": [helper, *workers]}[whom]:
        process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
    time.sleep(0.2)
    started = time.perf_counter()
    assert grade_batch([ROOT[0], r"\boxed{\sqrt{8}}"], [ROOT[1], r"2\sqrt{2}"]) == [1.0, 1.0]
    assert time.perf_counter() - started < 20


def test_workers_end_with_their_parent():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    parent = context.Process(target=_start_and_wait, args=(there,))
    parent.start()
    assert here.poll(60)
    helper = psutil.Process(here.recv())
    family = [helper, *helper.children(recursive=True)]
    parent.kill()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


def _start_and_wait(connection):
    grade(*ROOT)
    connection.send(grader._WORKERS._helper._process.pid)
    time.sleep(60)


def test_a_script_needs_no_main_guard(tmp_path):
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(f"import rlkit\nprint(rlkit.grade({ROOT[0]!r}, {ROOT[1]!r}))\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(rlkit.__file__).parent.parent)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.strip() == "1.0", done.stderr


@pytest.mark.slow
def test_ten_thousand_golds_against_themselves():
    golds = [str(i) for i in range(4000)] + [rf"\frac{{{i}}}{{7}}" for i in range(3000)]
    golds += [rf"{i}\sqrt{{2}} + x" for i in range(3000)]
    started = time.perf_counter()
    grades = grade_batch([rf"\boxed{{{gold}}}" for gold in golds], golds, progress=True)
    assert grades == [1.0] * len(golds)
    assert time.perf_counter() - started < 120


def test_the_value_of_a_number_is_exact():
    assert grade(r"\boxed{0.1}", str(Fraction(1, 10))) == 1.0
    assert grade(r"\boxed{100000000000000000001}", "100000000000000000000") == 0.0


@pytest.mark.parametrize(
    ("completion", "gold"),
    [
        (r"\boxed{3\mathrm{i}}", "3"),
        (r"\boxed{3}", r"3\mathrm{i}"),
        (r"\boxed{2\mathbf{x}}", "2"),
        (r"\boxed{5\text{ M}}", "5"),
        (r"\boxed{5\text{ bn}}", "5"),
        (r"\boxed{5 grand}", "5"),
        (r"\boxed{101 binary}", "101"),
        (r"\boxed{5\text{ false}}", "5"),
        ("#### 5, or six", "5"),
        ("#### 5, million", "5"),
        ("#### 5.x", "5"),
        ("#### 5, x", "5"),
        ("#### 5!", "5"),
        (r"\boxed{3<4}", "1<2"),
        (r"\boxed{1=2}", "3=4"),
        (r"\boxed{\sqrt{10^{32}+1}}", "10^{16}"),
        (r"\boxed{\sin(x)=1}", "1"),
    ],
)
def test_what_changes_a_number_is_no_unit_and_no_remark(completion, gold):
    assert grade(completion, gold) == 0.0

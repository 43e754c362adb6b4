from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlkit import claims
from rlkit.claims import Claim, Verdicts, compare_claims, decide, judge, read_claims, write_claims


def claim(op: str = ">", threshold: Any = 0.0, **changes: Any) -> Any:
    fixed = {"id": "c", "statement": "A beats B.", "endpoint": "A - B", "unit": "accuracy", "expected": "supported"}
    return Claim(**{**fixed, "op": op, "threshold": threshold, **changes})


@pytest.mark.parametrize(
    ("op", "inside", "edge", "outside"),
    [
        ("<", "supported", "refuted", "refuted"),
        ("<=", "supported", "supported", "refuted"),
        (">", "refuted", "refuted", "supported"),
        (">=", "refuted", "supported", "supported"),
    ],
)
def test_sides_include_the_threshold_only_where_the_sign_says_so(op: str, inside: Any, edge: Any, outside: Any) -> None:
    assert decide(op, 1.0, 0.5, 0.5) == inside
    assert decide(op, 1.0, 1.0, 1.0) == edge
    assert decide(op, 1.0, 1.5, 1.5) == outside
    assert decide(op, 1.0, 0.5, 1.5) == "inconclusive"


def test_equality_has_a_tolerance() -> None:
    assert decide("==", 0.0, 0.0, 0.0) == "supported"
    assert decide("==", 0.0, -0.01, 0.01, 0.01) == "supported"
    assert decide("==", 0.0, -0.02, 0.01, 0.01) == "inconclusive"
    assert decide("==", 0.0, 0.02, 0.03, 0.01) == "refuted"


@given(st.sampled_from(claims.OPS), st.floats(-5, 5), st.floats(-5, 5), st.floats(0, 3))
def test_a_claim_and_its_opposite_are_never_both_supported(op: str, threshold: Any, lo: Any, width: Any) -> None:
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
    if op == "==":
        return
    swap = {"supported": "refuted", "refuted": "supported", "inconclusive": "inconclusive"}
    assert decide(opposite[op], threshold, lo, lo + width) == swap[decide(op, threshold, lo, lo + width)]


def test_judge_hand_computed() -> None:
    verdict = judge(claim(), [1.0, 2.0, 3.0, 2.0, 2.0])
    assert (verdict.estimate, verdict.seeds, verdict.n, verdict.verdict) == (2.0, 5, 5, "supported")
    assert verdict.interval == (1.12201, 2.87799)  # 2 -+ 2.776445 * sqrt(0.5) / sqrt(5)
    assert verdict.detectable == pytest.approx(0.87799, abs=1e-5)


def test_fewer_than_five_seeds_are_preliminary() -> None:
    assert judge(claim(), [1.0, 1.1, 1.2, 1.1]).verdict == "preliminary supported"
    assert judge(claim(), [-1.0, -1.1, -1.2]).verdict == "preliminary refuted"


def test_one_seed_decides_nothing() -> None:
    assert judge(claim(), [3.0]).verdict == "preliminary inconclusive"
    assert judge(claim("==", 3.0), [3.0]).verdict == "preliminary inconclusive"


def test_a_claim_over_a_sample_has_no_seeds() -> None:
    verdict = judge(claim("==", over="sample"), np.zeros(64))
    assert (verdict.seeds, verdict.n, verdict.verdict) == (None, 64, "supported")


@pytest.mark.parametrize("bad", [[], [float("nan"), 1.0], [float("inf")]])
def test_values_that_are_not_finite_name_the_claim(bad: Any) -> None:
    with pytest.raises(ValueError, match="Claim 'c', A - B"):
        judge(claim(), bad)


@pytest.mark.parametrize(
    "changes",
    [{"op": "=>"}, {"expected": "yes"}, {"over": "runs"}, {"threshold": float("nan")}, {"tolerance": 0.1}],
)
def test_a_claim_that_cannot_be_judged_is_refused(changes: Any) -> None:
    with pytest.raises(ValueError, match="Claim 'c'"):
        claim(**changes)


def test_the_file_has_exactly_the_schema_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "claims.json"
    write_claims(path, "demo", "full", "abc", [judge(claim(controls=["B"]), [0.1, 0.2, 0.1, 0.3, 1 / 3])])
    document = read_claims(path)
    assert list(document) == ["notebook", "preset", "code_key", "claims"]
    assert list(document["claims"][0]) == [
        "id", "statement", "endpoint", "op", "threshold", "unit", "estimate", "interval", "seeds", "n", "expected",
        "verdict", "controls", "note",
    ]  # fmt: skip
    assert document["claims"][0]["estimate"] == 0.206667  # 6 digits
    assert document["claims"][0]["seeds"] == 5
    assert stat.S_IMODE(path.stat().st_mode) & 0o044 or os.name == "nt"


def test_the_same_verdicts_give_the_same_bytes(tmp_path: Path) -> None:
    verdicts = [judge(claim(), [0.1, 0.2, 0.1, 0.3, 1 / 3])]
    for name in ("a", "b"):
        write_claims(tmp_path / name, "demo", "full", "abc", verdicts)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@given(
    st.sampled_from(["<", "<=", ">", ">="]),
    st.floats(-2, 2),
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9),
    st.sampled_from(["seeds", "sample"]),
)
def test_whatever_judge_says_passes_the_check(op: str, threshold: Any, values: Any, over: Any) -> None:
    document = claims.claims_document("demo", "full", "k", [judge(claim(op, threshold, over=over), values)])
    claims.check_claims(json.loads(json.dumps(document)))


def broken(**changes: Any) -> Any:
    document = claims.claims_document("demo", "full", "k", [judge(claim(), [1.0, 2.0, 3.0, 2.0, 2.0])])
    document["claims"][0] |= changes
    return document


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"estimate": float("nan")}, r"claims\.0\.estimate"),
        ({"estimate": "0.5"}, r"claims\.0\.estimate"),
        ({"estimate": 9.0}, "outside its interval"),
        ({"interval": [1.0]}, r"claims\.0\.interval"),
        ({"verdict": "true"}, "unknown verdict"),
        ({"verdict": "refuted"}, "does not follow"),
        ({"verdict": "preliminary supported"}, "does not fit 5 seeds"),
        ({"seeds": 0}, r"claims\.0\.seeds"),
        ({"p_value": 0.01}, r"p_value"),
        ({"op": "!="}, r"claims\.0\.op"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, changes: Any, message: str) -> None:
    path = tmp_path / "claims.json"
    path.write_text(json.dumps(broken(**changes)), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        read_claims(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_a_file_that_is_no_claims_file_is_an_error(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "claims.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"claims\.json"):
        read_claims(path)


def test_two_claims_of_one_id_are_an_error(tmp_path: Path) -> None:
    verdict = judge(claim(), [1.0, 2.0])
    with pytest.raises(ValueError, match="taken"):
        write_claims(tmp_path / "claims.json", "demo", "full", "k", [verdict, verdict])
    assert list(tmp_path.iterdir()) == []


def test_comparison_gives_verdicts_and_drift_in_half_intervals() -> None:
    old = claims.claims_document("demo", "full", "k", [judge(claim(), [1.0, 2.0, 3.0, 2.0, 2.0])])
    new = claims.claims_document(
        "demo", "tiny", "k", [judge(claim(), [2.0, 2.5, 3.0]), judge(claim(id="d"), [1.0, 1.0])]
    )
    first, second = compare_claims(old, new)
    assert (first.committed, first.new, first.changed) == ("supported", "preliminary supported", False)
    assert first.drift == pytest.approx(0.5 / 0.87799, abs=1e-4)
    assert (second.id, second.committed, second.changed, second.drift) == ("d", "none", True, None)
    assert [change.new for change in compare_claims(new, old)] == ["supported", "none"]


def test_few_seeds_that_do_not_decide_change_no_verdict() -> None:
    old = claims.claims_document("demo", "full", "k", [judge(claim(), [1.0, 2.0, 3.0, 2.0, 2.0])])
    for values, changed in ([[1.0], False], [[-9.0, 9.0], False], [[-1.0, -1.1, -1.0], True]):
        new = claims.claims_document("demo", "smoke", "k", [judge(claim(), values)])
        assert compare_claims(old, new)[0].changed is changed


def test_the_table_sets_verdicts_beside_the_committed_ones() -> None:
    verdicts = [judge(claim(statement="a <b> claim"), [1.0, 2.0, 1.5])]
    committed = claims.claims_document("demo", "full", "k", [judge(claim(), [-1.0, -2.0, -1.0, -1.0, -1.0])])
    shown = Verdicts(verdicts, committed)
    assert shown.table.loc["c", "committed"] == "refuted"
    assert shown["c"].decided == "supported"
    assert "&lt;b&gt;" in shown._repr_html_()
    assert "preliminary" in repr(shown)


def test_one_value_decides_nothing_over_a_sample_either() -> None:
    claim = Claim("one", "s", "e", ">", 0.0, "u", "supported", over="sample")
    assert judge(claim, [1.0]).verdict == "inconclusive"

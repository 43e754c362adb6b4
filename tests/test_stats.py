from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from rlkit import stats

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


def test_interval_hand_computed() -> None:
    # mean 2, s = 1, t(2) at 97.5 % = 4.302653, half = 4.302653 / sqrt(3)
    mean, lo, hi = stats.interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert hi - mean == pytest.approx(2.484138, abs=1e-6)
    assert mean - lo == pytest.approx(2.484138, abs=1e-6)


@given(st.lists(NUMBERS, min_size=2, max_size=20))
def test_interval_is_scipys_t_interval(values: Any) -> None:
    found = stats.interval(values)
    if len(set(values)) == 1:
        assert found == (values[0],) * 3
        return
    scale = np.std(values, ddof=1) / np.sqrt(len(values))
    if scale == 0:  # scipy gives NaN
        return
    lo, hi = scipy_stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=scale)
    assert found.lo == pytest.approx(lo, rel=1e-9, abs=1e-6)
    assert found.hi == pytest.approx(hi, rel=1e-9, abs=1e-6)
    assert found.lo <= found.mean <= found.hi


@given(NUMBERS, st.integers(1, 12))
def test_interval_without_spread_is_the_point(value: Any, n: int) -> None:
    assert stats.interval([value] * n) == (value, value, value)


def test_interval_covers_about_95_percent_with_three_seeds() -> None:
    rng = np.random.default_rng(0)
    inside = [lo <= 0 <= hi for _, lo, hi in (stats.interval(row) for row in rng.normal(size=(2000, 3)))]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [float("inf")], [-float("inf"), 0]])
def test_values_that_are_not_finite_are_an_error(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"none|finite"):
        stats.interval(bad)


def test_smallest_detectable_is_half_the_interval() -> None:
    values = [0.1, 0.4, 0.2, 0.5]
    mean, _, hi = stats.interval(values)
    assert stats.smallest_detectable(values) == pytest.approx(hi - mean)
    assert stats.smallest_detectable([1.0]) == float("inf")


def test_a_difference_just_above_the_smallest_detectable_is_decided() -> None:
    spread = np.array([-0.1, 0.0, 0.1, 0.05, -0.05])
    edge = stats.smallest_detectable(spread)
    assert stats.interval(spread + edge * 1.01).lo > 0
    assert stats.interval(spread + edge * 0.99).lo < 0


def test_pairs_match_by_seed_not_by_position() -> None:
    a = pd.Series([1.0, 2.0, 3.0], index=[0, 1, 2])
    b = pd.Series([30.0, 20.0, 10.0], index=[2, 1, 0])
    assert stats.paired_difference(a, b).tolist() == [-9.0, -18.0, -27.0]


def test_pairs_that_do_not_match_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"\[2\]"):
        stats.paired_difference(pd.Series([1.0, 2.0], index=[0, 1]), pd.Series([1.0, 2.0, 3.0], index=[0, 1, 2]))
    with pytest.raises(ValueError, match="cannot be paired"):
        stats.paired_difference([1.0], [1.0, 2.0])


def test_auc_hand_computed() -> None:
    assert stats.auc([0, 10, 40], [0.0, 1.0, 1.0]) == pytest.approx((5 + 30) / 40)
    assert stats.auc([0, 1], [0.25, 0.75]) == 0.5


@given(st.lists(NUMBERS, min_size=2, max_size=10))
def test_auc_lies_between_the_heights(heights: Any) -> None:
    area = stats.auc(range(len(heights)), heights)
    assert min(heights) - 1e-6 <= area <= max(heights) + 1e-6


@pytest.mark.parametrize("x", [[0], [1, 1], [2, 1, 3]])
def test_auc_of_what_is_no_curve_is_an_error(x: Any) -> None:
    with pytest.raises(ValueError, match="two points"):
        stats.auc(x, [0.0] * len(x))


def test_summary_leaves_missing_seeds_out() -> None:
    table = pd.DataFrame({0: [1.0, 5.0], 1: [3.0, np.nan]}, index=["a", "b"])
    found = stats.summary(table)
    assert found.loc["a", ["mean", "n"]].tolist() == [2.0, 2]
    assert found.loc["b", ["mean", "lo", "hi", "n"]].tolist() == [5.0, 5.0, 5.0, 1]

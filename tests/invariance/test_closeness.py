"""The comparison itself, on numbers that can be checked in the head."""

from __future__ import annotations

import random

import pytest

from tests.invariance.closeness import Residual, Tolerance, differences, residual

TOLERANCE = Tolerance(largest=3e-4, mean=1e-5)


def test_residuals_hand_computed() -> None:
    """Mean |reference| is 2; differences are 0.1, 0.1 and -0.3."""
    got = residual([1.1, -1.9, 2.7], [1.0, -2.0, 3.0])
    assert got == Residual(
        largest=pytest.approx(0.1), at=3, mean=pytest.approx(-0.1 / 6), growth=pytest.approx((0.1 - 0.1 - 0.3) / 6)
    )


def test_a_step_near_zero_is_measured_by_the_size_of_the_others() -> None:
    assert residual([1.0, 0.01], [1.0, 0.0]).largest == pytest.approx(0.02)


def test_a_reference_of_zeros_is_compared_as_it_is() -> None:
    assert residual([0.0, 0.5], [0.0, 0.0]) == Residual(0.5, 2, 0.25, 0.0)


def _noisy(size: float, added: float = 0.0, times: float = 1.0) -> list[str]:
    rng = random.Random(0)
    reference = [sign * (1 + rng.random()) for sign in (1, 1, -1, -1) * 12]
    signs = [1, -1] * 24
    found = [times * r + added + size * sign for r, sign in zip(reference, signs, strict=True)]
    return differences({"loss": found}, {"loss": reference}, TOLERANCE)


def test_noise_of_either_sign_is_rounding_and_the_same_size_of_one_sign_is_not() -> None:
    assert _noisy(1e-4) == []
    assert len(_noisy(1e-5, added=1e-4)) == 1 and "mean residual" in _noisy(1e-5, added=1e-4)[0]
    assert len(_noisy(1e-5, times=1.0001)) == 1 and "mean growth" in _noisy(1e-5, times=1.0001)[0]
    assert any("at step" in line for line in _noisy(1e-3))


@pytest.mark.parametrize(
    ("found", "told"), [([1.0], "1 steps"), ([1.0, float("nan")], "not finite")], ids=["length", "nan"]
)
def test_what_cannot_be_compared_is_an_error(found: list[float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        residual(found, [1.0, 2.0])


def test_a_metric_that_is_gone_is_told() -> None:
    assert differences({"a": [1.0]}, {"b": [1.0]}, TOLERANCE) == [
        "a is in one of them only",
        "b is in one of them only",
    ]

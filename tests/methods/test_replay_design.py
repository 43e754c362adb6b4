"""The design curve: hand-computed values, and the minimum that a grid finds."""

import math

import numpy as np
import pandas as pd
import pytest

import rlkit
from rlkit.methods import replay_design as design

GRID = [(mu, rho, alpha) for mu in (1.0, 5.28, 20.0) for rho in (0.01, 0.05, 0.3) for alpha in (0.1, 0.2, 0.4)]


def test_cost_of_a_step_hand_computed():
    assert design.charged_cost(fresh=16, trained=64, mu=5) == 144
    assert design.charged_cost(64, 64, 1) == 128


def test_design_cost_hand_computed():
    # x = 4, y = 2, mu = 4, rho = .25, alpha = .25: 4^.5 * 1.5 * (.5 + .25 + .25) = 3
    assert design.design_cost(4, 2, mu=4, rho=0.25, alpha=0.25) == pytest.approx(3)
    assert design.design_cost(4, 2, mu=4, rho=0.25, alpha=0.25, tau=4) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("mu", "alpha", "x", "y"),
    [(5.28, 0.1, 21.6, 7.4), (5.28, 0.2, 5.9, 4.9), (5.28, 0.4, 0.29, 1.23), (6.84, 0.1, 24.2, 8.65)],
)
def test_optimum_at_rho_005(mu, alpha, x, y):
    assert design.best_span(mu, 0.05, alpha) == pytest.approx(x, rel=0.01)
    assert design.best_reuse(mu, 0.05, alpha) == pytest.approx(y, rel=0.01)


@pytest.mark.parametrize(("mu", "rho", "alpha"), GRID)
def test_the_formulas_are_where_a_grid_search_ends(mu, rho, alpha):
    xs, ys = np.exp(np.linspace(np.log(1e-2), np.log(1e4), 1401)), np.exp(np.linspace(np.log(1e-2), np.log(1e3), 1201))
    X, Y = np.meshgrid(xs, ys, indexing="ij")
    i, j = np.unravel_index(np.argmin(X ** (2 * alpha) * (1 + Y / mu) * (1 / Y + 1 / X + rho)), X.shape)
    assert design.best_span(mu, rho, alpha) == pytest.approx(xs[i], rel=0.03)
    assert design.best_reuse(mu, rho, alpha) == pytest.approx(ys[j], rel=0.03)
    assert design.design_cost(xs[i], ys[j], mu, rho, alpha) >= design.design_cost(
        design.best_span(mu, rho, alpha), design.best_reuse(mu, rho, alpha), mu, rho, alpha
    )


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.4])
def test_the_two_forms_of_the_span_agree(alpha):
    y = design.best_reuse(5.28, 0.05, alpha)
    assert design.best_span(5.28, 0.05, alpha) == pytest.approx(1 / (5.28 / y**2 - 0.05))


def test_finite_where_the_printed_formulas_are_nought_by_nought():
    assert math.isfinite(design.best_span(20, 0.05, 0.2))  # mu rho = 1
    assert design.best_reuse(4, 0, 0.25) == pytest.approx(4)  # rho = 0: mu (1 - 2 alpha) / (2 alpha)
    assert design.best_reuse(4, 1e-12, 0.25) == pytest.approx(4)


def test_best_reuse_at_a_given_span():
    assert design.best_reuse_at(4, mu=5, rho=0) == pytest.approx(math.sqrt(20))
    x = design.best_span(5.28, 0.05, 0.2)
    assert design.best_reuse_at(x, 5.28, 0.05) == pytest.approx(design.best_reuse(5.28, 0.05, 0.2))


def test_reuse_pays_more_where_drawing_is_dearer():
    found = [design.best_reuse(mu, 0.05, 0.2) for mu in (1, 5, 20)]
    assert found == sorted(found) and found[0] < found[2]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
def test_no_optimum_inside_is_an_error(alpha):
    with pytest.raises(ValueError, match="0 < alpha < 1/2"):
        design.best_reuse(5, 0.05, alpha)
    with pytest.raises(ValueError, match="mu is above 0"):
        design.best_reuse(0, 0.05, 0.2)


def test_mu_is_measured_without_moving_the_weights(tmp_path, one_thread):
    trainer = rlkit.trainer("grpo", preset="smoke", output_dir=str(tmp_path))
    before = [p.clone() for p in trainer.model.parameters()]
    found = design.measured_mu(trainer, rounds=1)
    assert found.keys() == {"draw", "score", "train", "mu"} and all(value > 0 for value in found.values())
    assert found["mu"] == pytest.approx(found["draw"] / found["train"])
    assert found["score"] < found["train"]  # a backward pass comes on top
    assert all(a.equal(b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert all(p.grad is None or not p.grad.any() for p in trainer.model.parameters())


def test_cost_is_added_up_for_each_run_hand_computed():
    rows = [("a", seed, step, "replay/rows", 16.0 if step == 1 else 64.0, "run") for seed in (0, 1) for step in (1, 2)]
    frame = pd.DataFrame(rows, columns=["arm", "seed", "step", "metric", "value", "source"])
    found = design.with_cost(frame, mu=5, fresh={"a": 16})
    cost = found[found["metric"] == "cost"].sort_values(["seed", "step"])
    assert cost["value"].tolist() == [0, 96, 240, 0, 96, 240] and cost["step"].tolist() == [0, 1, 2] * 2
    again = design.with_cost(found, mu=1, fresh={"a": 16})
    assert again[again["metric"] == "cost"]["value"].max() == 112  # in place of the other cost
    assert design.with_cost(frame, 5, {"b": 1}).equals(frame)


def test_first_place_at_a_level_hand_computed():
    assert design.first_reached([0, 10, 20], [0.0, 0.4, 0.2], 0.3) == pytest.approx(7.5)
    assert design.first_reached([5, 10], [0.5, 0.6], 0.3) == 5
    assert design.first_reached([0, 10], [0.0, 0.4], 0.5) == math.inf


def test_difference_at_equal_levels_hand_computed():
    # a passes .1 to .3 with entropy 3 to 1; b passes .2 to .4 with entropy 1 to 0: from .2 to .3, 1.5 minus .75
    assert design.at_equal([0.1, 0.3], [3.0, 1.0], [0.2, 0.4], [1.0, 0.0]) == pytest.approx(1.5 - 0.75)
    assert design.at_equal([0.1, 0.3], [2.0, 2.0], [0.1, 0.3], [2.0, 2.0]) == 0
    with pytest.raises(ValueError, match="No level is reached by both"):
        design.at_equal([0.1, 0.2], [1, 1], [0.3, 0.4], [1, 1])

"""How large a replay buffer should be, and how often a rollout should be trained: the design curve of a cost model.

Paper: arXiv 2604.08706, theorem 4.5 (full text read). A step draws R rollouts, trains B rows of a buffer of N, and
costs B + mu R, mu what a rollout costs to draw over what it costs to train. With x = N / R (how old rows get), y = B /
R (how often each is trained), rho a correlation of rollouts drawn near each other, and a second moment that grows with
age as (x / tau)^(2 alpha), the number to minimise is

    J(x, y) = (x / tau)^(2 alpha) (1 + y / mu) (1 / y + 1 / x + rho)
    y* = (-alpha + sqrt(alpha^2 + mu rho (1 - 2 alpha))) / rho,     x* = y*^2 / (2 alpha (mu + y*))
    at a given x:  y*(x) = sqrt(mu / (rho + 1 / x))

What is different here, and why. y* is written as mu (1 - 2 alpha) / (alpha + sqrt(...)), the same number, which is not
0 / 0 at rho = 0. The paper's explicit x* has 1 / mu - rho in its denominator and is 0 / 0 at mu rho = 1; the form above
is not. tau moves J by a factor and no optimum. alpha has to be fitted to a task: from alpha = 1/2 on there is no
optimum inside, and the best buffer is the smallest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import pandas as pd


def charged_cost(fresh: float, trained: float, mu: float) -> float:
    """B + mu R, in the cost of training one row: `fresh` rollouts drawn, `trained` rows trained."""
    return trained + mu * fresh


def design_cost(x: float, y: float, mu: float, rho: float, alpha: float, tau: float = 1.0) -> float:
    """J(x, y), in units of its own: smaller is better. x = N / R and y = B / R are positive."""
    return (x / tau) ** (2 * alpha) * (1 + y / mu) * (1 / y + 1 / x + rho)


def best_reuse(mu: float, rho: float, alpha: float) -> float:
    """y* = B / R at the optimum.

    Args:
        mu: cost of drawing a rollout over cost of training it, positive.
        rho: correlation, at least 0.
        alpha: how fast the second moment grows with age, above 0 and below 1/2.

    Raises:
        ValueError: a number outside its range; at alpha >= 1/2 there is no optimum inside.

    """
    _check(mu, rho, alpha)
    share = 1 - 2 * alpha
    return mu * share / (alpha + math.sqrt(alpha**2 + mu * rho * share))


def best_span(mu: float, rho: float, alpha: float) -> float:
    """x* = N / R at the optimum; arguments as for `best_reuse`."""
    y = best_reuse(mu, rho, alpha)
    return y**2 / (2 * alpha * (mu + y))


def best_reuse_at(x: float, mu: float, rho: float) -> float:
    """y*(x) = sqrt(mu / (rho + 1 / x)): how often to train a rollout, for a buffer of x = N / R."""
    return math.sqrt(mu / (rho + 1 / x))


def _check(mu: float, rho: float, alpha: float) -> None:
    if not mu > 0 or not rho >= 0:
        raise ValueError(f"mu is above 0 and rho at least 0, not {mu} and {rho}.")
    if not 0 < alpha < 0.5:
        raise ValueError(
            f"alpha={alpha}: the optimum lies inside for 0 < alpha < 1/2. Above, keep the buffer as small as possible; "
            "at 0 age costs nothing, and the best buffer has no end."
        )


def measured_mu(trainer: Any, rounds: int = 5) -> dict[str, float]:
    """Seconds to draw a rollout, to score it, and to train it, on this machine: medians over `rounds` batches.

    Args:
        trainer: an `RLVRTrainer` that has not trained; its weights stay as they are.
        rounds: batches of `per_device_train_batch_size` rows.

    Returns:
        `draw`, `score` and `train` in seconds a row, and `mu` = draw / train.

    """
    size = trainer.args.per_device_train_batch_size
    rows = [trainer.train_dataset[i % len(trainer.train_dataset)] for i in range(size)]
    times: dict[str, list[float]] = {"draw": [], "score": [], "train": []}
    for _ in range(rounds + 1):  # the first warms up
        start = time.perf_counter()
        got = trainer.generate_rows(rows)
        times["draw"].append(time.perf_counter() - start)
        ids = [row["prompt_ids"] for row in got], [row["completion_ids"] for row in got]
        start = time.perf_counter()
        trainer.score(*ids)
        times["score"].append(time.perf_counter() - start)
        start = time.perf_counter()
        with torch.enable_grad():
            trainer.score.__wrapped__(trainer, *ids)[0].sum().backward()
        times["train"].append(time.perf_counter() - start)
        trainer.model.zero_grad()
    out = {name: sorted(found[1:])[len(found[1:]) // 2] / size for name, found in times.items()}
    return {**out, "mu": out["draw"] / out["train"]}


def with_cost(frame: pd.DataFrame, mu: float, fresh: Mapping[str, int]) -> pd.DataFrame:
    """Runs with one more metric, `cost`: B + mu R added up over the steps, B from the metric `replay/rows`.

    Args:
        frame: columns `arm, seed, step, metric, value`.
        mu: cost of drawing a rollout over cost of training a row.
        fresh: R, rollouts drawn a step, of each arm that counts; others get no cost.

    """
    import pandas as pd

    chosen = (frame["metric"] == "replay/rows") & frame["arm"].isin(list(fresh))
    rows = frame[chosen].sort_values(["arm", "seed", "step"])
    if rows.empty:
        return frame
    spent = rows["value"] + mu * rows["arm"].map(fresh)
    cost = rows.assign(metric="cost", value=spent.groupby([rows["arm"], rows["seed"]]).cumsum())
    first = cost.drop_duplicates(["arm", "seed"]).assign(step=0, value=0.0)
    return pd.concat([frame[frame["metric"] != "cost"], first, cost], ignore_index=True)


def first_reached(x: Sequence[float], y: Sequence[float], level: float) -> float:
    """The first x at which the line through the points (x, y) is at `level` or above; infinity if nowhere."""
    for i, height in enumerate(y):
        if height >= level:
            if i == 0:
                return float(x[0])
            share = (level - y[i - 1]) / (height - y[i - 1])
            return float(x[i - 1] + share * (x[i] - x[i - 1]))
    return math.inf


def at_equal(level_a: Sequence[float], a: Sequence[float], level_b: Sequence[float], b: Sequence[float]) -> float:
    """Mean of `a` minus `b` over the levels that both runs pass; a run is at a level when it first reaches it.

    Raises:
        ValueError: there is no such level.

    """
    low, high = max(level_a[0], level_b[0]), min(max(level_a), max(level_b))
    if high < low:
        raise ValueError(f"No level is reached by both: one ends at {high:g}, the other starts at {low:g}.")
    levels = [low + (high - low) * i / 20 for i in range(21)]

    def height(level: Sequence[float], value: Sequence[float], wanted: float) -> float:
        place = first_reached(range(len(level)), level, wanted)
        left = int(place)
        right = min(left + 1, len(value) - 1)
        return value[left] + (place - left) * (value[right] - value[left])

    return sum(height(level_a, a, w) - height(level_b, b, w) for w in levels) / len(levels)

"""Exercises of the notebook `replay_buffer`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rlkit.exercises.exercise import Case, Exercise
from rlkit.methods import replay_design
from rlkit.methods.gspo import clipped
from rlkit.methods.vcpo import effective_share


def objective(logps: Tensor, old_logps: Tensor, advantages: Tensor) -> Tensor:
    """PPO's clipped objective (B, T) with the ratio to the policy that drew the rows, epsilon .2; advantages (B,)."""
    return clipped((logps - old_logps).exp(), advantages[:, None].expand_as(logps), 0.8, 1.2)


def _rows(size: int, length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logps = -torch.rand(size, length, generator=generator)
    drift = 0.4 * torch.randn(size, length, generator=generator)
    return logps, logps - drift, torch.randn(size, generator=generator)


def _old_rows() -> Iterator[Case]:
    one = torch.tensor([[-0.5, -1.0]])
    yield Case((one, one, torch.tensor([1.0])), note="a fresh row: both policies are the same")
    yield Case((one, torch.tensor([[-0.6, -0.9]]), torch.tensor([1.0])), note="an old row, nothing is clipped")
    yield Case(
        (one, torch.tensor([[-1.5, -0.2]]), torch.tensor([1.0])), note="one token became likelier, one less likely"
    )
    yield Case((one, torch.tensor([[-1.5, -0.2]]), torch.tensor([-2.0])), note="a negative advantage")
    for size, length in ((4, 3), (8, 5)):
        yield Case(_rows(size, length, size), note=f"{size} rows of {length} tokens")


OBJECTIVE = Exercise(
    what="The clipped objective of each token of old rows, from log-probs now and log-probs stored.",
    reference=objective,
    cases=_old_rows,
    hint="rho = exp(logps - old_logps); the smaller of rho A and clip(rho, .8, 1.2) A, each row's A on all its tokens.",
    mistakes={
        "The ratio is 1 here, as if the present policy had drawn the old rows.": lambda now, old, A: (
            torch.ones_like(now) * A[:, None]
        ),
        "Nothing is clipped: take the smaller of rho A and clip(rho, .8, 1.2) A.": lambda now, old, A: (
            (now - old).exp() * A[:, None]
        ),
        "The ratio is upside down: it is the present policy over the one that drew.": lambda now, old, A: clipped(
            (old - now).exp(), A[:, None].expand_as(now), 0.8, 1.2
        ),
        "The larger of the two is taken: where A is negative that lets the ratio run away.": lambda now, old, A: (
            (now - old).exp() * A[:, None]
        ).maximum((now - old).exp().clamp(0.8, 1.2) * A[:, None]),
        "Only the clipped ratio is used: a row that became too unlikely could not come back.": lambda now, old, A: (
            (now - old).exp().clamp(0.8, 1.2) * A[:, None]
        ),
    },
)


def effective_size(log_ratios: Tensor) -> float:
    """Effective sample size of B rows as a share of B, from log w (B,): (sum w)^2 / (B sum w^2)."""
    return effective_share(log_ratios)


def _weights() -> Iterator[Case]:
    yield Case((torch.zeros(4),), note="fresh rows: all weights are 1")
    yield Case((torch.tensor([0.0, 0.0, -50.0, -50.0, -50.0, -50.0]),), note="four of six rows weigh nothing")
    yield Case((torch.tensor([1.0, 1.0, 1.0]),), note="equal weights that are not 1")
    yield Case((torch.tensor([0.0, 0.5, -0.5, 1.0]),), note="four different weights")
    yield Case((torch.tensor([200.0, 199.0, 150.0]),), note="weights too large for a float, as over long rows")
    for size in (8, 64):
        values = torch.randn(size, generator=torch.Generator().manual_seed(size))
        yield Case((values,), note=f"{size} rows")


EFFECTIVE_SIZE = Exercise(
    what="How many rows a stale batch is worth, as a share of its rows.",
    reference=effective_size,
    cases=_weights,
    hint="w = exp(log_ratios - their maximum): a common factor of all weights cancels, and nothing overflows.",
    mistakes={
        "This is not divided by the number of rows: the share is asked for.": lambda x: len(x) * effective_share(x),
        "This is upside down: the squared sum stands above, the sum of squares below.": lambda x: (
            1 / effective_share(x)
        ),
        "The weights are exp(log_ratios), not the log ratios themselves.": lambda x: float(
            x.sum() ** 2 / (len(x) * (x**2).sum())
        ),
        "exp of a large number is infinite: subtract the largest log ratio first.": lambda x: float(
            x.exp().sum() ** 2 / (len(x) * (x.exp() ** 2).sum())
        ),
    },
)


def best_reuse(mu: float, rho: float, alpha: float) -> float:
    """How often to train each rollout, B / R at the optimum of the cost model."""
    return replay_design.best_reuse(mu, rho, alpha)


def _models() -> Iterator[Case]:
    yield Case((5.0, 0.05, 0.2), note="drawing costs five times training")
    yield Case((5.28, 0.05, 0.4), note="rollouts age quickly")
    yield Case((1.0, 0.3, 0.1), note="drawing costs as much as training")
    yield Case((20.0, 0.05, 0.2), note="mu rho = 1")
    yield Case((4.0, 0.0, 0.25), note="rho = 0: the printed form is 0 / 0")
    yield Case((4.0, 1e-14, 0.25), note="rho nearly 0: the printed form loses all its digits")


BEST_REUSE = Exercise(
    what="y* = B / R, in a form that does not break at rho = 0.",
    reference=best_reuse,
    cases=_models,
    hint="Multiply (-a + sqrt(a^2 + c)) / rho, c = mu rho (1 - 2 a), by (a + sqrt(...)) above and below.",
    mistakes={
        "This is the other root of the equation: y* is positive.": lambda mu, rho, a: (
            (-a - (a * a + mu * rho * (1 - 2 * a)) ** 0.5) / rho
        ),
        "This is y* at an infinitely large buffer, where age costs nothing.": lambda mu, rho, a: (mu / rho) ** 0.5,
        "This is x* = N / R: y* = B / R is asked for.": replay_design.best_span,
    },
)


EXERCISES = {"objective": OBJECTIVE, "effective_size": EFFECTIVE_SIZE, "best_reuse": BEST_REUSE}

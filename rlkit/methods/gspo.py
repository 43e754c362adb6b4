"""GSPO: one importance ratio for a whole completion. Here as a surrogate, equal to the one that TRL has built in.

Paper: arXiv 2507.18071. With rho_t = pi(y_t) / pi_old(y_t) and |y| tokens:

    s = (pi(y) / pi_old(y))^(1 / |y|) = exp(mean_t log rho_t)
    J = min(s A, clip(s, 1 - epsilon, 1 + epsilon_high) A),   mean over completions

with epsilon = 3e-4 and epsilon_high = 4e-4: s is a mean, so it stays far closer to 1 than a token's ratio.

What is different here: nothing but the place. TRL does it with `importance_sampling_level="sequence"`; here it is
three lines on the `surrogate` seam, which shows how a ratio of one's own is written. The loss must be the mean per
completion (`loss_type="grpo"`): a sum over tokens would count s once a token. On fresh rollouts s = 1, and this is
GRPO.

`clipped` and `loss_time` are used by the other methods that change the ratio. Options named as TRL's (`epsilon`) go
to the method, since TRL's own clip is not active under a surrogate.
"""

from __future__ import annotations

from torch import Tensor

from rlkit.method import Context, Method


def clipped(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """PPO's objective min(ratio A, clip(ratio, low, high) A); `low` and `high` bound the ratio itself."""
    return (ratio * advantages).minimum(ratio.clamp(low, high) * advantages)


def loss_time(ctx: Context) -> tuple[Tensor, Tensor, Tensor]:
    """log(pi / pi_old), advantages and mask of a micro-batch, each (B, T)."""
    assert ctx.logps is not None and ctx.old_logps is not None and ctx.advantages is not None and ctx.mask is not None
    return ctx.logps - ctx.old_logps, ctx.advantages, ctx.mask


def sequence_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """The exponential of a row's mean log ratio over its tokens. (B, T) -> (B, 1); 1 for a row without a token."""
    return ((log_ratio * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)).exp()


def objective(ctx: Context) -> Tensor:
    """The `surrogate` hook: every token of a completion gets the completion's objective."""
    log_ratio, A, mask = loss_time(ctx)
    o = ctx.options
    if o["level"] not in ("sequence", "token"):
        raise ValueError(f"level is 'sequence' or 'token', not {o['level']!r}.")
    ratio = sequence_ratio(log_ratio, mask) if o["level"] == "sequence" else log_ratio.exp()
    return clipped(ratio.expand_as(A), A, 1 - o["epsilon"], 1 + o["epsilon_high"])


GSPO = Method(
    "gspo",
    summary="one importance ratio a completion",
    paper="2507.18071",
    parent="grpo",
    config={"loss_type": "grpo"},
    options={"level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    reduces_to={"level": "token", "epsilon": 0.2, "epsilon_high": 0.2, "loss_type": "dapo"},
    surrogate=objective,
)

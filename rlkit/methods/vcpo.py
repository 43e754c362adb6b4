"""VCPO: a step as long as the batch's importance weights allow.

Paper: arXiv 2602.17616 (released code and its README read). With w_i = prod_t pi(y_t) / pi_old(y_t) of row i of B:

    e = (sum w)^2 / (B sum w^2)                  effective sample size as a share of B, from weights without a cap
    step size = learning_rate * sqrt(min(1, e / e_base)),  e_base = 1; set back after the step
    J = sum_i sg(min(w_i, 8)) A_i log pi(y_i)    truncated weights, no PPO clip

On fresh rollouts w = 1, e = 1, and the step is the plain one.

What is different here, and why. A is the z-score of the group, mean over tokens per completion, as in the script. The
paper's other part, the baseline of least variance b* = sum w^2 n R / sum w^2 n with n_i = |grad log pi(y_i)|^2, needs
one backward pass a row: `least_variance_baseline` has the formula, the method keeps the group's mean. With Adam a
smaller step size is not a smaller gradient: the second moment does not change. Weights are set beside the
largest one in logs, so that products over long completions do not overflow.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.gspo import clipped, loss_time

RULES = ("sqrt", "linear", "off")


def effective_share(log_weights: Tensor) -> float:
    """Effective sample size as a share of the rows: (sum w)^2 / (B sum w^2), from log w (B,); 1 without rows."""
    if not len(log_weights):
        return 1.0
    w = (log_weights - log_weights.max()).double().exp()
    return float(w.sum() ** 2 / (len(w) * (w**2).sum()))


def step_factor(share: float, base: float = 1.0, rule: str = "sqrt") -> float:
    """What the learning rate is multiplied with, at an effective share of the rows: "sqrt", "linear" or "off"."""
    if rule not in RULES:
        raise ValueError(f"rule is one of {RULES}, not {rule!r}.")
    ratio = min(1.0, share / base)
    return {"sqrt": math.sqrt(ratio), "linear": ratio, "off": 1.0}[rule]


def least_variance_baseline(weights: Tensor, norms: Tensor, rewards: Tensor) -> Tensor:
    """b* = sum w^2 n R / sum w^2 n of a group. Weights, squared gradient norms and rewards (..., G) -> (..., 1)."""
    importance = weights**2 * norms
    return (importance * rewards).sum(-1, keepdim=True) / importance.sum(-1, keepdim=True)


def truncated_weight(log_ratio: Tensor, mask: Tensor, cap: float = 8.0) -> tuple[Tensor, Tensor]:
    """min(w, cap) (B, 1) and log w (B,) of each row, from log ratios and mask (B, T)."""
    log_w = (log_ratio * mask).sum(1)
    return log_w.clamp(max=math.log(cap)).exp()[:, None], log_w


class StepSize:
    """Scales the learning rate of one optimiser step by `factor`, which the loss has set, and sets it back after it."""

    def __init__(self) -> None:
        self.factor, self._rates = 1.0, list[float]()

    def callback(self, trainer: Any) -> StepSize:
        """Itself: it has the two events."""
        return self

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any, **about: Any) -> None:
        """Before the step: scale."""
        self._rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] *= self.factor

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any, **about: Any) -> None:
        """After the step: set back."""
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate

    def state_dict(self) -> dict[str, float]:
        """The last factor."""
        return {"factor": self.factor}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Put back what `state_dict` gave."""
        self.factor = state["factor"]

    def objective(self, ctx: Context) -> Tensor:
        """The `surrogate` hook; it also tells the callback how many rows the batch is worth."""
        log_ratio, A, mask = loss_time(ctx)
        assert ctx.logps is not None
        o = ctx.options
        if o["level"] == "token":
            return clipped(log_ratio.exp(), A, 1 - o["epsilon"], 1 + o["epsilon"])
        weight, log_w = truncated_weight(log_ratio.detach(), mask, o["cap"])
        share = effective_share(log_w[mask.bool().any(1)])
        self.factor = step_factor(share, o["e_base"], o["rule"])
        ctx.log("vcpo/effective_share", share)
        ctx.log("vcpo/step_factor", self.factor)
        return weight * A * ctx.logps


_step_size = StepSize()

VCPO = Method(
    "vcpo",
    summary="truncated sequence weights, and a step size that follows the effective sample size",
    paper="2602.17616",
    parent="grpo",
    config={"loss_type": "grpo"},
    options={"level": "sequence", "cap": 8.0, "rule": "sqrt", "e_base": 1.0, "epsilon": 0.2},
    reduces_to={"level": "token", "rule": "off", "loss_type": "dapo"},
    surrogate=_step_size.objective,
    callbacks=(_step_size.callback,),
    state=(_step_size,),
    pooled=True,
)

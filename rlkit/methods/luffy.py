"""LUFFY: one expert's completion in every group, weighted so that unlikely tokens of it still teach.

Paper: arXiv 2504.14945 (released code and its tables read). A group is 7 rollouts and 1 expert row; with r_i over all
8,

    A_i = r_i - mean(r)                                  no standard deviation
    rollouts      A rho, rho = pi / pi_old               no clip
    expert row    A f(pi(y_t)), f(x) = x / (x + gamma), gamma = .1;   its behaviour policy is taken as 1

The weight of an expert token on grad log pi is x f'(x) = x gamma / (x + gamma)^2: largest at pi = gamma, and above
the unshaped x while x < sqrt(gamma) - gamma.

What is different here, and why. The code sums over tokens and divides by the padded length, not by rows, so that its
scale depends on the micro-batch; ours is Dr. GRPO's loss, the sum over a constant. Its entropy bonus (.001 in the
script, .01 in the text) is left out. The expert row is the last of its group and is a worked solution from the data
set: `solution`, or `steps` and `gold`. It takes the place of a rollout, which is then not drawn. `clip` puts PPO's
clip back on rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.gspo import clipped, loss_time
from rlkit.methods.hints import worked_solution


def shaped_probability(logps: Tensor, gamma: float = 0.1) -> Tensor:
    """f(pi) = pi / (pi + gamma) from log-probs (nats), any shape."""
    p = logps.exp()
    return p / (p + gamma)


def last_of_groups(groups: Sequence[int], count: int = 1) -> list[int]:
    """The last `count` rows of each group; `groups` has the number of its group for each row, in order."""
    return [i for i, group in enumerate(groups) if i + count >= len(groups) or groups[i + count] != group]


def expert_ids(text: str, tokenizer: Any, longest: int) -> list[int]:
    """A worked solution as a completion: its tokens and the end token, at most `longest`."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*ids, tokenizer.eos_token_id][:longest]


def rollout(ctx: Context, rows: Sequence[Any], trainer: Any) -> list[dict[str, Any]]:
    """Rollouts, with a worked solution as the last of each group."""
    experts = last_of_groups(ctx.groups, ctx.options["experts"]) if ctx.options["experts"] else []
    drawn = [i for i in range(len(rows)) if i not in set(experts)]
    got = dict(zip(drawn, trainer.generate_rows([rows[i] for i in drawn]), strict=True))
    prompts = trainer.tokenize([row["prompt"] for row in rows])
    for i in experts:
        ids = expert_ids(worked_solution(rows[i]), trainer.processing_class, trainer.max_completion_length)
        got[i] = {"prompt_ids": prompts[i], "completion_ids": ids}
    return [{**got[i], "expert": int(i in set(experts))} for i in range(len(rows))]


def objective(ctx: Context) -> Tensor:
    """A f(pi) on expert rows, A rho on rollouts."""
    log_ratio, A, _ = loss_time(ctx)
    assert ctx.logps is not None
    clip, ratio = ctx.options["clip"], log_ratio.exp()
    own = ratio * A if clip is None else clipped(ratio, A, 1 - clip, 1 + clip)
    return torch.where(ctx.extras["expert"][:, None] > 0, shaped_probability(ctx.logps, ctx.options["gamma"]) * A, own)


LUFFY = Method(
    "luffy",
    summary="one expert completion in every group, weighted by pi / (pi + gamma)",
    paper="2504.14945",
    parent="dr_grpo",
    config={"loss_type": "dr_grpo", "scale_rewards": "none"},
    options={"experts": 1, "gamma": 0.1, "clip": None},
    reduces_to={"experts": 0, "clip": 0.2},
    rollout=rollout,
    surrogate=objective,
)

"""SAGE: a prompt on which every rollout fails gets a hint, which stays in the prompt. `guide.py` shares the helpers.

Paper: SAGE arXiv 2602.03143 (full text and released code read). A group that is all wrong has no gradient; with a
hint h some rollouts are right:

    y ~ pi(. | x, h), trained under (x, h): on-policy, so nothing has to be corrected
    level 0 is no hint; level l + 1 is tried when level l has no right rollout, up to L = 3; the last group stays
    PPO's clip .2 / .28, z-score in the group, no KL. Tested without hints

What is different here, and why. The paper sums over the tokens of a rollout; here the loss is TRL's token mean. In the
paper the policy writes the hint itself from a reference solution (by its own ablation better than a fixed one). A tiny
base reads no instructions, so here a hint is the start of a worked solution, set behind the prompt, from which a base
goes on: at level l of L the share l / (L + 1) of it. The variant that moves one level an epoch is left out. A rollout
is right when its reward is at least `right_at`; use a reward that looks at the final answer, since a hinted completion
holds only the rest of the solution. Rollouts that are thrown away are charged to `generated_tokens`: a fair control has
as many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from rlkit.method import Context, Method


def worked_solution(row: Mapping[str, Any]) -> str:
    """A right solution of a data-set row: its column `solution`, else `steps` and `gold` with `#` between them.

    Raises:
        ValueError: the row has neither.

    """
    if row.get("solution") is not None:
        return str(row["solution"])
    if row.get("steps") is None or row.get("gold") is None:
        raise ValueError(
            f"A worked solution needs the column 'solution', or 'steps' and 'gold'; the row has {sorted(row)}."
        )
    return f"{row['steps']}#{row['gold']}"


def start_of(text: str, share: float) -> str:
    """The first `share` of a text, in whole characters."""
    return text[: int(share * len(text) + 1e-9)]


def with_hint(prompt: Any, hint: str) -> Any:
    """The prompt with the hint behind it: a text, or chat messages, whose last one gets it on a new line."""
    if isinstance(prompt, str):
        return prompt + hint
    *before, last = prompt
    return [*before, {**last, "content": f"{last['content']}\n{hint}"}] if hint else list(prompt)


def failed(rewards: Sequence[float], groups: Sequence[int], right_at: float) -> list[int]:
    """The rows of groups without a right rollout, from each row's reward (NaN is not right) and number of its group."""
    solved = {group for reward, group in zip(rewards, groups, strict=True) if reward >= right_at}
    return [i for i, group in enumerate(groups) if group not in solved]


def useful(p: Tensor, size: int) -> Tensor:
    """How often a group has both right and wrong rollouts at success rate p: 1 - (1 - p)^G - p^G. Any shape."""
    return 1 - (1 - p) ** size - p**size


def hinted_rows(rows: Sequence[Any], share: float, trainer: Any) -> list[dict[str, Any]]:
    """One rollout of each row under its prompt with the first `share` of its solution behind it, and that `hint`."""
    hints = [start_of(worked_solution(row), share) for row in rows]
    asked = [{**row, "prompt": with_hint(row["prompt"], hint)} for row, hint in zip(rows, hints, strict=True)]
    return [{**got, "hint": hint} for got, hint in zip(trainer.generate_rows(asked), hints, strict=True)]


def sage_rollout(ctx: Context, rows: Sequence[Any], trainer: Any) -> list[dict[str, Any]]:
    """Each group at the first level of hints at which one of its rollouts is right; the hint stays in the prompt."""
    o, levels = ctx.options, ctx.options["levels"]
    out = [{**got, "level": 0} for got in trainer.generate_rows(rows)]
    for level in range(1, levels + 1):
        again = failed(trainer.grade(rows, [got["completion_ids"] for got in out]), ctx.groups, o["right_at"])
        if not trainer.anywhere(bool(again)):  # grading is done by all ranks together
            break
        drawn = hinted_rows([rows[i] for i in again], level / (levels + 1), trainer)
        for i, got in zip(again, drawn, strict=True):
            del got["hint"]
            out[i] = {**got, "level": level}
    ctx.log("sage/level", sum(got["level"] for got in out) / len(out))
    return out


SAGE = Method(
    "sage",
    summary="groups that fail are drawn again with a growing hint, which stays in the prompt",
    paper="2602.03143",
    parent="grpo",
    config={"epsilon_high": 0.28},
    options={"levels": 3, "right_at": 1.0},
    reduces_to={"levels": 0, "epsilon_high": 0.2},
    rollout=sage_rollout,
)

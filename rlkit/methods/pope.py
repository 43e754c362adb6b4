"""POPE: prompts that are too hard get the shortest start of a solution from which the policy can finish.

Paper: arXiv 2601.18779 (abstract; the method from three summaries; a fourth describes fixed
quarters of the solution). Before training, for every hard prompt
x, one that the starting policy fails in all of K rollouts, with a right solution z:

    x' = x + instruction + z[:k],   k = the shortest of some evenly spaced starts that gives a right completion
                                    a quarter of z where none does

Training is GRPO on the guided x' and on the plain x, half each. Only tokens that the policy wrote have a gradient: z
is never imitated. It is tested without guidance.

What is different here, and why. Grid and samples could not be found: ours are 1/8, 2/8, 3/8 of z and 8 rollouts at
each. The instruction ("continue from here") is empty, because a tiny base reads none; the start of z stands behind
the prompt, where a base goes on from it. Prompts that are not hard leave the data set, as in the paper (`easy=True`
keeps them as they are). The scan is charged to `generated_tokens`. A rollout is right when its reward is at least
`right_at`; use a reward that looks at the final answer, since the completion of x' holds only the rest of the
solution. z is the column `solution`, or `steps` and `gold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlkit.method import Method
from rlkit.methods.hints import start_of, with_hint, worked_solution


def shortest_start(shares: Sequence[float], successes: Sequence[int], fallback: float = 0.25) -> float:
    """The first of `shares` (of the solution, ascending) with a success; `fallback` where none has one."""
    return next((share for share, hits in zip(shares, successes, strict=True) if hits), fallback)


def guided_prompt(row: Any, share: float, instruction: str = "") -> Any:
    """The row's prompt with an instruction and the first `share` of its solution behind it."""
    return with_hint(row["prompt"], instruction + start_of(worked_solution(row), share))


def successes(rows: Sequence[Any], trainer: Any) -> list[int]:
    """How many of K rollouts of each row are right, under the present policy."""
    K, right_at = trainer.method.options["samples"], trainer.method.options["right_at"]
    right = [got["reward"] >= right_at for got in trainer.collect([row for row in rows for _ in range(K)])]
    return [sum(right[i * K : (i + 1) * K]) for i in range(len(rows))]


def add_guided(dataset: Any, trainer: Any) -> Any:
    """Hard prompts twice, guided and plain, with the column `guided`: the share of the solution in the prompt.

    Raises:
        ValueError: no prompt is hard.

    """
    o = trainer.method.options
    if not o["guide"]:
        return dataset
    rows = list(dataset)
    solved = successes(rows, trainer)
    hard = [row for row, hits in zip(rows, solved, strict=True) if not hits]
    if not hard:
        raise ValueError(
            f"No prompt failed all {o['samples']} rollouts: there is nothing to guide. Take harder prompts."
        )
    hits: list[list[int]] = [[] for _ in hard]
    for share in o["shares"]:
        open_ = [i for i, found in enumerate(hits) if not any(found)]
        guided = [{**hard[i], "prompt": guided_prompt(hard[i], share, o["instruction"])} for i in open_]
        counts = dict(zip(open_, successes(guided, trainer), strict=True)) if open_ else {}
        for i, found in enumerate(hits):
            found.append(counts.get(i, 0))
    out = [{**row, "guided": 0.0} for row, wins in zip(rows, solved, strict=True) if not wins or o["easy"]]
    for row, found in zip(hard, hits, strict=True):
        share = shortest_start(o["shares"], found, o["fallback"])
        name = {"id": f"{row['id']}/guided"} if isinstance(row.get("id"), str) else {}
        out.append({**row, **name, "prompt": guided_prompt(row, share, o["instruction"]), "guided": share})
    return type(dataset).from_list(out)


POPE = Method(
    "pope",
    summary="hard prompts also with the shortest start of a solution that helps",
    paper="2601.18779",
    parent="grpo",
    options={
        "guide": True,
        "samples": 8,
        "shares": (0.125, 0.25, 0.375),
        "fallback": 0.25,
        "instruction": "",
        "easy": False,
        "right_at": 1.0,
    },
    reduces_to={"guide": False},
    data=add_guided,
)

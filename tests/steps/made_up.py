"""Steps and comparisons written by hand, so that what is shown of them is known."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rlkit.steps.compare import Comparison
from rlkit.steps.step import Step, StepRow

NASTY = '<script>alert("x")</script>&\'`\x00\x1b[31m\u202eabc\ud800\x9b2J'
"""Markup, NUL, terminal escapes (7 and 8 bit), a bidi override and half a surrogate pair."""


def row(tokens: list[str], values: dict[str, list[float]] | None = None, **fields: Any) -> StepRow:
    """A rollout of these tokens, of reward 1 and advantage 0.5, trained, unless `fields` says otherwise."""
    start: dict[str, Any] = {"group": 0, "prompt": "1+1?", "reward": 1.0, "advantage": 0.5, "grad_norm": 0.25}
    ids = list(range(len(tokens)))
    return StepRow(
        **{**start, **fields},
        completion="".join(tokens),
        prompt_ids=[1],
        completion_ids=ids,
        tokens=tokens,
        values=values or {},
    )


def step(rows: list[StepRow], **fields: Any) -> Step:
    """A step of grpo with these rollouts."""
    start: dict[str, Any] = {"method": "grpo", "trainer": "rlvr", "step": 7, "seed": 3, "options": {"beta": 0.0}}
    return Step(**{**start, "metrics": {"loss": -0.25, "grad_norm": 2.0, "clip": 0.125}, **fields}, rows=rows)


def many(groups: int, size: int, length: int, token: str = "7") -> Step:
    """A step with six quantities a token, all of them different from token to token."""

    def values(i: int) -> dict[str, list[float]]:
        names = ("entropy", "advantage", "weight", "ratio", "coefficient", "loss", "logp", "old_logp")
        return {name: [0.1234567 * (n + 1) * (1 + t + i) for t in range(length)] for n, name in enumerate(names)}

    return step(
        [row([token] * length, values(i), group=g, reward=float(i)) for g in range(groups) for i in range(size)]
    )


def comparison(completion: str = "2#2") -> Comparison:
    """Two methods on four rollouts: of opposite sign on rollout 0, both silent on 1, one of them on 2 and without 3."""
    rows = pd.DataFrame(
        {
            "group": [0, 0, 0, 0],
            "rollout": [0, 1, 2, 3],
            "completion": pd.Series([completion] * 4, dtype=object),  # Arrow has no lone surrogates
            "reward": [1.0, 0.0, 0.0, 1.0],
            "advantage[grpo]": [1.5, 0.0, -0.75, 1.5],
            "trained[grpo]": [True, False, True, True],
            "tokens[grpo]": [3, 0, 3, 3],
            "advantage[other]": [-0.5, 0.0, 0.25, float("nan")],
            "trained[other]": [True, False, False, False],
            "tokens[other]": [3, 0, 0, 0],
        }
    )
    names = ["grpo", "other"]
    cosine = pd.DataFrame([[1.0, -0.125], [-0.125, 1.0]], index=names, columns=names)
    return Comparison(names, rows, cosine, ["other uses the first 3 of each 4 rollouts."])

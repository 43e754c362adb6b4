"""Settings that many methods share: what each is, and what a value of it means. The rest is in the methods' files."""

from __future__ import annotations

from typing import Any

TERMS: dict[str, str] = {
    "num_generations": "rollouts of each prompt.",
    "loss_type": "what the sum over tokens is divided by.",
    "scale_rewards": "what centred rewards are divided by.",
    "temperature": "of the softmax that rollouts are drawn from.",
    "epsilon": "how far the ratio may fall under 1 before it is clipped.",
    "epsilon_high": "how far the ratio may rise over 1 before it is clipped.",
    "distill.beta": "1 is KL(student || teacher), 0 is KL(teacher || student), between them are mixtures.",
    "buffer": "rows that are kept; the oldest leave first.",
    "per_prompt": "rows that are kept of each prompt.",
    "max_age": "optimiser steps after which a row leaves the buffer.",
    "store": "which rows are kept.",
    "draw": "which of the stored rows are taken.",
    "mix": "share of rows that are replayed.",
    "ratio_source": "which policy the ratio of a replayed row is taken to.",
    "right_at": "a rollout is right when its reward is at least this.",
    "level": "one importance ratio a token, or one a completion.",
    "samples": "rollouts of each prompt in a measurement before training.",
    "rule": "which of the variants described above is used.",
    "lmbda": "share of batches that the student draws itself.",
    "at_least": "old rows that a prompt must have before any of them is used.",
    "start_at": "share of right rollouts in a step from which on old rows are used.",
    "refresh_every": "optimiser steps after which frozen weights are renewed.",
    "teacher": "which model says what it would have written.",
    "max_steps": "optimiser steps of a run.",
}
VALUES: dict[tuple[str, Any], str] = {
    ("loss_type", "dr_grpo"): "By a constant, the longest completion: a long answer then counts no less a token.",
    ("loss_type", "dapo"): "By the tokens of the whole batch: every token counts the same.",
    ("loss_type", "bnpo"): "By the tokens of the micro-batch.",
    ("loss_type", "grpo"): "By each completion's own length, then a mean: every completion counts the same.",
    ("scale_rewards", "none"): "By nothing: dividing by the spread of a handful of rewards is an idea of its own.",
    ("scale_rewards", "group"): "By the standard deviation of the group.",
    ("level", "sequence"): "Here one a completion.",
}


def meaning(name: str, value: Any, trainer: str) -> str:
    """What a shared setting is (for one trainer only: "distill.beta") and what this value means; empty for others."""
    known = TERMS.get(f"{trainer}.{name}") or TERMS.get(name, "")
    return f"{known[:1].upper()}{known[1:]} {_value(name, value)}".strip()


def _value(name: str, value: Any) -> str:
    return next((text for (key, known), text in VALUES.items() if key == name and known == value), "")

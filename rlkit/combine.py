"""Several methods in one: each keeps its seams, options and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlkit.method import Method

SEAMS = ("data", "sampler", "rollout", "reward", "advantage", "batch", "token_weight", "surrogate", "divergence")
"""Fields of `Method` that one method sets: two that set the same one cannot be combined."""
JOIN = "+"
"""Between the names of combined methods: `"mc_grpo+replay_uniform"`."""


def fields(methods: Sequence[Method], name: str) -> dict[str, Any]:
    """The arguments of the `Method` that `methods` make together.

    Raises:
        ValueError: two set one seam, say different things about one option, or run on different trainers.

    """
    if len({method.trainer for method in methods}) != 1:
        raise ValueError("Methods are combined that run on one trainer; give at least one.")
    return {
        "name": name or JOIN.join(method.name for method in methods),
        "summary": ", with ".join(method.summary or method.name for method in methods),
        "paper": ", ".join(dict.fromkeys(method.paper for method in methods if method.paper)),
        "trainer": methods[0].trainer,
        "parent": methods[0].name,
        **_reduction(methods[1:]),
        "config": _joined("the TRL option", [(method.name, method.config) for method in methods]),
        "options": _joined("the option", [(method.name, method.options) for method in methods]),
        **{seam: _one(seam, methods) for seam in SEAMS},
        "callbacks": tuple(made for method in methods for made in method.callbacks),
        "state": tuple(thing for method in methods for thing in method.state),
        "teacher": _teacher(methods),
        "needs": frozenset[str]().union(*(method.needs for method in methods)),
        "pooled": any(method.pooled for method in methods),
    }


def _reduction(others: Sequence[Method]) -> dict[str, Any]:
    """Where the others' own options turn them off, what is left is the first."""
    if all(other.reduces_to is not None and set(other.reduces_to) <= set(other.options) for other in others):
        return {"reduces_to": {name: value for other in others for name, value in (other.reduces_to or {}).items()}}
    return {"no_reduction": "its parts have no options that turn them off"}


def _one(seam: str, methods: Sequence[Method]) -> Any:
    """What the one method that sets the seam puts there."""
    setters = [method for method in methods if getattr(method, seam) is not None]
    if len(setters) > 1:
        names = " and ".join(repr(method.name) for method in setters)
        raise ValueError(
            f"Methods {names} set the same seam {seam!r}, so they cannot be combined: one seam, one method."
        )
    return getattr(setters[0], seam) if setters else None


def _teacher(methods: Sequence[Method]) -> str:
    """The teacher that they agree on: "model" is what a method says that does not care."""
    named = list(dict.fromkeys(method.teacher for method in methods if method.teacher != "model"))
    if len(named) > 1:
        raise ValueError(f"Methods want different teachers ({' and '.join(named)}), so they cannot be combined.")
    return named[0] if named else "model"


def _joined(what: str, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The mappings of several methods in one."""
    out: dict[str, Any] = {}
    owner: dict[str, str] = {}
    for method, values in parts:
        for name, value in values.items():
            if name in out and out[name] != value:
                raise ValueError(
                    f"Methods {owner[name]!r} and {method!r} set {what} {name!r} to {out[name]!r} and {value!r}, so "
                    "they cannot be combined as they are: give both the same value."
                )
            out[name], owner[name] = value, method
    return out

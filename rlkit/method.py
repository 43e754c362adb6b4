"""What a method is (`Method`), what its functions may see (`Context`), and where all methods are (`catalog`).

A method is a few pure functions plugged into a TRL trainer. Files in `rlkit/methods/` import torch and this module,
never TRL.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def near(name: str, known: Sequence[str]) -> str:
    """Tail of an error message: the near names if there are some, else all known ones."""
    close = difflib.get_close_matches(name, list(known), n=3)
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Known: {', '.join(sorted(known))}."


@dataclass(frozen=True)
class Context:
    """What a seam's function may look at. Letters: N prompts, G rollouts each, B = N*G rows, T completion tokens.

    At generation time it is global (the rollouts of all ranks, in prompt order); at loss time it is one micro-batch.
    Fields that do not exist at that time are None.
    """

    step: int = 0
    """Optimiser steps done so far."""
    max_steps: int = 0
    """Optimiser steps of the whole run."""
    seed: int = 0
    """The run's seed: a function that draws numbers seeds a generator of its own from `seed` and `step`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The method's options, defaults filled in."""

    columns: Mapping[str, list[Any]] = field(default_factory=dict)
    """Generation time: each dataset column as a list of B values."""
    rewards: torch.Tensor | None = None
    """(N, G) weighted sum of the reward functions; NaN where no function could score the rollout."""
    rewards_per_func: torch.Tensor | None = None
    """(N, G, F) what each reward function gave."""
    valid: torch.Tensor | None = None
    """(N, G) bool: False where a shorter group has no rollout."""
    lengths: torch.Tensor | None = None
    """(N, G) completion tokens, the end token included."""
    texts: Sequence[Any] = ()
    """B completions as the reward functions see them."""
    completion_ids: Sequence[Sequence[int]] = ()
    """B completions as token ids."""

    logps: torch.Tensor | None = None
    """(B, T) log-probs (nats) of the sampled tokens under the current policy."""
    old_logps: torch.Tensor | None = None
    """(B, T) log-probs (nats) under the policy that drew the tokens."""
    entropies: torch.Tensor | None = None
    """(B, T) entropy (nats) of the policy at each position."""
    advantages: torch.Tensor | None = None
    """(B, T) advantages, already spread over tokens."""
    mask: torch.Tensor | None = None
    """(B, T) 1 where a token counts in the loss."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Loss time: every tensor of the micro-batch."""


@dataclass(frozen=True)
class Method:
    """A named way to train: options and functions that plug into the seams of a trainer.

    `config` values may be functions of the other settings: `{"num_generations": lambda s: s["num_generations"] + 1}`.
    """

    name: str
    summary: str = ""
    """One line for the catalogue."""
    paper: str = ""
    """arXiv id."""
    trainer: str = "rlvr"
    """Which trainer runs it."""
    parent: str | None = None
    """The method that this one changes."""
    reduces_to: Mapping[str, Any] | None = None
    """Settings at which it equals its parent."""
    no_reduction: str = ""
    """Why there is no such setting, where there is none."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """TRL options that the method sets: a value, or a function of the other settings."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The method's own options with their defaults."""

    data: Callable[..., Any] | None = None
    """`(dataset, trainer) -> dataset`, once, when the trainer exists."""
    reward: Any = None
    """A reward function in TRL's signature, or the name of one of the task's; replaces the task's default."""
    advantage: Callable[[Context], Any] | None = None
    """`(ctx) -> A (N, G)` or `(A, keep)`, keep (N, G) bool: rows that are False leave the batch."""
    token_weight: Callable[[Context], Any] | None = None
    """`(ctx) -> W (B, T) >= 0`, times the advantage; the denominators stay."""
    callbacks: tuple[Callable[..., Any], ...] = ()
    """Factories `(trainer) -> TrainerCallback`."""
    state: tuple[Any, ...] = ()
    """Objects with `state_dict` and `load_state_dict`, saved with every checkpoint."""

    def __post_init__(self) -> None:
        if self.trainer not in {"rlvr", "distill"}:
            raise ValueError(f"Method {self.name!r}: trainer is 'rlvr' or 'distill', not {self.trainer!r}.")
        for thing in self.state:
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                raise TypeError(f"Method {self.name!r}: state {thing!r} needs state_dict() and load_state_dict().")

    def with_options(self, **options: Any) -> Method:
        """The same method with some options changed; an unknown name is an error that lists near ones."""
        for name in options:
            if name not in self.options:
                raise ValueError(f"Method {self.name!r} has no option {name!r}. {near(name, list(self.options))}")
        return dataclasses.replace(self, options={**self.options, **options})


class Catalog:
    """All methods, by name; iterates over `Method`s."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = dict(methods)

    def __iter__(self) -> Iterator[Method]:
        return iter(self._methods.values())

    def __len__(self) -> int:
        return len(self._methods)

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def __getitem__(self, name: str) -> Method:
        if name not in self._methods:
            raise KeyError(f"There is no method {name!r}. {near(name, list(self._methods))}")
        return self._methods[name]

    def __repr__(self) -> str:
        from rlkit.show import catalog_text

        return catalog_text(self)

    def _repr_html_(self) -> str:
        from rlkit.show import catalog_html

        return catalog_html(self)


def catalog() -> Catalog:
    """Every `Method` that stands at the top level of a file in `rlkit/methods/`."""
    import rlkit.methods as package

    found: dict[str, Method] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Method) and found.setdefault(value.name, value) is not value:
                raise ValueError(f"Two methods are named {value.name!r}; the second is in {module.__file__}.")
    return Catalog(found)


def get_method(method: str | Method) -> Method:
    """A method by name, or the method itself."""
    return method if isinstance(method, Method) else catalog()[method]

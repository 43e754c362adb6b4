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

from rlkit import combine as combining

if TYPE_CHECKING:
    import torch


TEACHERS = ("model", "self", "initial", "none")


def near(name: str, known: Sequence[str]) -> str:
    """Tail of an error message: the near names if there are some, else all known ones."""
    close = difflib.get_close_matches(name, list(known), n=3)
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Known: {', '.join(sorted(known))}."


def _not_logged(name: str, value: float) -> None:
    """What `Context.log` is where nobody trains."""


@dataclass(frozen=True)
class Context:
    """What a seam's function may look at. Letters: N prompts, G rollouts each, B = N*G rows, T completion tokens.

    At generation time it is global (the rollouts of all ranks, in prompt order), in `rollout` it is this rank's; at
    loss time it is one micro-batch, for a pooled method the accumulation window of all ranks. Fields that do not exist
    at that time are None.

    With groups of different sizes G is the largest, and `valid` says where there is a rollout. What has B entries has
    them in the order of `tensor[valid]`.
    """

    step: int = 0
    """Optimiser steps done so far."""
    max_steps: int = 0
    """Optimiser steps of the whole run."""
    seed: int = 0
    """The run's seed: a function that draws numbers seeds a generator of its own from `seed` and `step`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The method's options, defaults filled in."""
    log: Callable[[str, float], None] = field(default=_not_logged, repr=False, compare=False)
    """`log(name, value)`: a metric of one's own, averaged over a logging step and over ranks; NaN is left out."""

    group_size: int = 0
    """Before and at generation: rollouts a prompt, where no sampler says otherwise."""
    groups: Sequence[int] = ()
    """Generation time: for each of B rows the number of its prompt."""
    columns: Mapping[str, list[Any]] = field(default_factory=dict)
    """Generation time: each dataset column, and what a rollout hook put beside its rollouts, as a list of B values."""
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
    """(B, T) log-probs (nats) of the sampled tokens under the current policy; at generation time under the policy that
    drew them, for a method with `needs={"logps"}`."""
    old_logps: torch.Tensor | None = None
    """(B, T) log-probs (nats) under the policy that drew the tokens."""
    entropies: torch.Tensor | None = None
    """(B, T) entropy (nats) of the policy at each position; there where `logps` is."""
    advantages: torch.Tensor | None = None
    """(B, T) advantages, already spread over tokens."""
    mask: torch.Tensor | None = None
    """(B, T) 1 where a token counts in the loss."""
    divergence: torch.Tensor | None = None
    """Distillation: (B, T) reverse KL (nats), KL(student || teacher), at each position."""
    forward: torch.Tensor | None = None
    """Distillation, for a method with `needs={"forward"}`: (B, T) forward KL (nats), KL(teacher || student)."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Loss time: every tensor of the micro-batch; numbers of rollout rows (`age`) are (B,). In distillation also
    `positions`, `teacher_logps`, `teacher_entropies` (B, T) and the number `vocabulary`; for `divergence` one entry a
    row: `tokens`, `rows`, `positions`, `weights`, each (R,)."""


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
    sampler: Callable[..., Any] | None = None
    """`(ctx, dataset, rows) -> [(row, g), ...]` before generation: which prompts, and how many rollouts of each.
    `rows` are the next prompts in TRL's order, one dict each; `[(row, ctx.group_size) for row in rows]` is stock. Rows
    may be edited. The sum of g stays `len(rows) * ctx.group_size`."""
    rollout: Callable[..., Any] | None = None
    """`(ctx, rows, trainer) -> one dict a row` in place of generation, with `prompt_ids` (trained under) and
    `completion_ids` (the end token included). `rows` are this rank's, whole groups; `trainer.generate_rows(rows)` is
    stock. A row may have `sample_prompt_ids` (the prompt that it was drawn under: log-probs are scored under it) and
    `old_logps` (numbers in place of scoring, for all or the first of its completion tokens). Anything else becomes a
    column, and numbers (`age`) reach `ctx.extras`; it has to be in every row."""
    reward: Any = None
    """A reward function in TRL's signature, or the name of one of the task's; replaces the task's default. It is called
    with the rows of all ranks, and with the keywords `options` (the method's) and `learn`: False in evaluation, `grade`
    and `collect`, where a reward with memory must not learn."""
    advantage: Callable[[Context], Any] | None = None
    """`(ctx) -> A (N, G)` or `(A, keep)`, keep (N, G) bool: rows that are False leave the batch. A may be (B, T), or
    None for the trainer's own."""
    batch: Callable[..., Any] | None = None
    """`(trainer, batch) -> batch` after the advantage: this rank's rows, advantages frozen; rows may join or leave.
    Their number stays a multiple of `steps_per_generation`."""
    token_weight: Callable[[Context], Any] | None = None
    """`(ctx) -> W (B, T) >= 0`. RLVR: times the advantage; the denominators stay. Distillation: the loss is
    sum(W d) / sum(W) over the accumulation window of all ranks, and tokens of weight 0 cost nothing."""
    surrogate: Callable[[Context], Any] | None = None
    """`(ctx) -> objective (B, T)` to be maximised, differentiable in `ctx.logps`, in place of TRL's clipped ratio; with
    `loss_type` grpo, bnpo, dr_grpo or dapo. TRL's clip metrics are not logged then: log one's own."""
    divergence: Callable[..., Any] | None = None
    """Distillation: `(student_logits (R, V), teacher_logits (R, V), ctx) -> loss (R,)` in place of TRL's family of
    divergences. R are some of the kept tokens: a row's loss may depend on that row only. Without a teacher its logits
    are None."""
    teacher: str = "model"
    """Distillation: "model", a model of its own; "self", the student as it is now, which costs no second model;
    "initial", the student as it was at the start (the base under adapters, else a frozen copy; see
    `trainer.refresh_teacher`); "none". In each case the data's column `teacher_prompt`, where there is one, is what the
    teacher reads before the same completion."""
    callbacks: tuple[Callable[..., Any], ...] = ()
    """Factories `(trainer) -> TrainerCallback`, or an object with some of its `on_...` methods."""
    state: tuple[Any, ...] = ()
    """Objects with `state_dict` and `load_state_dict`, saved with every checkpoint."""
    needs: frozenset[str] = frozenset()
    """`{"logps"}`: rollouts are scored under the policy that drew them (one more forward). Rewards get the columns
    `logps` and `entropies`, a 1-D tensor a row; `advantage` gets them as (B, T); they are `old_logps` in the loss.
    Distillation: `{"forward"}`: `ctx.forward` beside `ctx.divergence`."""
    pooled: bool = False
    """`token_weight` and `surrogate` have statistics over rows: they are called once an optimiser step, on the whole
    accumulation window of all ranks (one more forward, in distillation only with accumulation), so that the result does
    not depend on accumulation."""

    def __post_init__(self) -> None:
        if self.trainer not in {"rlvr", "distill"}:
            raise ValueError(f"Method {self.name!r}: trainer is 'rlvr' or 'distill', not {self.trainer!r}.")
        for seam in (name for name in combining.SEAMS if name != "reward"):
            if not (getattr(self, seam) is None or callable(getattr(self, seam))):
                got = type(getattr(self, seam)).__name__
                raise TypeError(f"Method {self.name!r}, seam {seam!r}: expected something to call, got {got}.")
        if self.divergence is not None and self.trainer != "distill":
            raise ValueError(f"Method {self.name!r}, seam 'divergence': it needs trainer='distill'.")
        self._check_family()
        for thing in self.state:
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                raise TypeError(f"Method {self.name!r}: state {thing!r} needs state_dict() and load_state_dict().")

    def _check_family(self) -> None:
        """Raise ValueError for a field that means nothing to the trainer."""
        known = {"rlvr": "logps", "distill": "forward"}[self.trainer]
        if not set(self.needs) <= {known}:
            raise ValueError(f"Method {self.name!r}: needs can hold {known!r}, not {set(self.needs)}.")
        if self.teacher not in TEACHERS:
            raise ValueError(f"Method {self.name!r}: teacher is one of {', '.join(TEACHERS)}, not {self.teacher!r}.")
        if self.trainer == "rlvr":
            return
        if self.teacher == "none" and self.divergence is None:
            raise ValueError(f"Method {self.name!r} has no teacher, so it needs a 'divergence' of its own.")
        for seam in ("sampler", "rollout", "reward", "advantage", "batch", "surrogate"):
            if getattr(self, seam) is not None:
                raise ValueError(f"Method {self.name!r}, seam {seam!r}: distillation has no such seam.")

    def with_options(self, **options: Any) -> Method:
        """The same method with some options changed; an unknown name is an error that lists near ones."""
        for name in options:
            if name not in self.options:
                raise ValueError(f"Method {self.name!r} has no option {name!r}. {near(name, list(self.options))}")
        return dataclasses.replace(self, options={**self.options, **options})

    @staticmethod
    def combine(*methods: str | Method, name: str = "") -> Method:
        """One method from several that set different seams; the name `"mc_grpo+replay_uniform"` means the same.

        Options and TRL options of all are joined. Where the options of the others turn them off, it equals the first.

        Raises:
            ValueError: two set one seam, or say different things about one option.

        """
        return Method(**combining.fields([get_method(method) for method in methods], name))


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
    """A method by name, the method itself, or several combined: `"mc_grpo+replay_uniform"`."""
    if isinstance(method, Method):
        return method
    known = catalog()
    if method in known or combining.JOIN not in method:
        return known[method]
    return Method.combine(*(known[part.strip()] for part in method.split(combining.JOIN)), name=method)

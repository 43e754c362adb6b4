"""Several methods on the same rollouts: what each would train, and how far their gradients point the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlkit.method import Method, get_method
from rlkit.steps.step import Step, frame

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

DRAWS = ("data", "sampler", "rollout")
"""Seams that change which rollouts there are: on given ones they have nothing to say."""


@dataclass(frozen=True)
class Comparison:
    """Methods side by side on the same rollouts."""

    methods: list[str]
    rows: pd.DataFrame
    """One row a rollout: group, rollout, completion, reward; and for each method M `advantage[M]` (NaN where it does
    not use the rollout), `trained[M]` (bool) and `tokens[M]` (tokens that it pushes). `reward[M]` where a method has a
    reward of its own."""
    cosine: pd.DataFrame
    """M x M: cosine of the angle between the methods' gradients; NaN where a gradient is 0."""
    notes: list[str] = field(default_factory=list)
    steps: dict[str, Step] = field(default_factory=dict, repr=False)
    """The step of each method."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, without the steps."""
        return {
            "methods": self.methods,
            "rows": self.rows.to_dict("list"),
            "cosine": self.cosine.to_numpy().tolist(),
            "notes": self.notes,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Comparison:
        """What `to_dict` gave."""
        import pandas as pd

        methods = list(saved["methods"])
        cosine = pd.DataFrame(saved["cosine"], index=methods, columns=methods, dtype=float)
        return cls(methods, frame(saved["rows"], "completion"), cosine, list(saved["notes"]))

    def __repr__(self) -> str:
        from rlkit.steps.text import comparison_text

        return comparison_text(self)

    def _repr_html_(self) -> str:
        from rlkit.steps.view import comparison_html

        return comparison_html(self)


def compare(step: Step, methods: Sequence[str | Method]) -> Comparison:
    """Apply several methods to the rollouts of a step.

    The policy is that of the trainer which gave the step, and every method sees the same prompts and completions: those
    of the whole generation batch. Each has its own options and its own loss, but for TRL options that the trainer was
    told. A method that cannot use groups of this size (the median wants an odd number) uses one rollout less of
    each, and the notes say so.

    Args:
        step: from `trainer.preview()`, while that trainer is in memory and has not trained since.
        methods: names or `Method`s, of the same trainer. The name of the step's method is that method as it was set.

    Raises:
        ValueError: a saved or recorded step; a method that changes which rollouts there are; two of one name.

    """
    source, chosen = step.source, _methods(step, methods)
    _check(step, chosen)
    found: dict[str, Step] = {}
    gradients: dict[str, Tensor] = {}
    notes: list[str] = []
    with source.trainer.untouched(), _threads_as_they_are():
        for method in chosen:
            found[method.name], gradients[method.name], used = _step_of(source, method)
            if used < min(source.sizes):
                notes.append(f"{method.name} uses the first {used} of each {min(source.sizes)} rollouts.")
    return Comparison(list(found), _rows(step, source, found), _cosines(gradients), notes, found)


def _methods(step: Step, methods: Sequence[str | Method]) -> list[Method]:
    own = getattr(getattr(step.source, "trainer", None), "method", None)
    every = [methods] if isinstance(methods, str | Method) else methods
    return [own if own is not None and method == own.name else get_method(method) for method in every]


@contextmanager
def _threads_as_they_are() -> Iterator[None]:
    """Presets set torch's number of threads: put it back."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _check(step: Step, methods: Sequence[Method]) -> None:
    from rlkit.trainers.preview import sum_of_weights

    source = step.source
    if source is None or source.weights != sum_of_weights(source.trainer.model):
        why = "has trained since" if source is not None else "is gone: this step was recorded, saved or loaded"
        raise ValueError(f"compare needs the policy that the step was made with, and it {why}. Use trainer.preview().")
    if not methods or len({method.name for method in methods}) < len(methods):
        raise ValueError("compare takes one or more methods of different names.")
    for method in methods:
        if method.trainer != step.trainer:
            raise ValueError(
                f"{method.name!r} runs on the {method.trainer!r} trainer, and this step is {step.trainer!r}."
            )
        if seams := [seam for seam in DRAWS if getattr(method, seam) is not None]:
            raise ValueError(
                f"{method.name!r} changes which rollouts there are (seam {seams[0]!r}): on the same rollouts there is "
                "nothing to compare. Give its parent, or look at its own trainer.preview()."
            )


def _step_of(source: Any, method: Method) -> tuple[Step, Tensor, int]:
    """A method's step and gradient on the rollouts, and how many of each group it uses."""
    from rlkit.trainers.alike import like

    size, refused = min(source.sizes), None
    for used in (size, size - 1) if size > 2 else (size,):
        index = [n for n, place in enumerate(_places(source.sizes)) if place < used]
        try:
            trainer = like(source.trainer, method, len(source.sizes), used)
            ids = [source.completion_ids[n] for n in index]
            return (*trainer.look([source.rows[n] for n in index], ids, row_gradients=False), used)
        except ValueError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _places(sizes: Sequence[int]) -> list[int]:
    """For each rollout its number within its group."""
    return [place for size in sizes for place in range(size)]


def _rows(step: Step, source: Any, found: Mapping[str, Step]) -> pd.DataFrame:
    group = [n for n, size in enumerate(source.sizes) for _ in range(size)]
    keys = list(zip(group, _places(source.sizes), strict=True))
    own = _by_place(step)
    by_method = {name: _by_place(one) for name, one in found.items()}
    known = {key: row for rows in (*by_method.values(), own) for key, row in rows.items()}
    table: dict[str, list[Any]] = {"group": group, "rollout": [place for _, place in keys]}
    table["completion"] = [known[key].completion if key in known else "" for key in keys]
    table["reward"] = [known[key].reward if key in known else None for key in keys]
    for name, rows in by_method.items():
        rewards = [rows[key].reward if key in rows else None for key in keys]
        if any(key in own and rows[key].reward != own[key].reward for key in rows):
            table[f"reward[{name}]"] = rewards
        table[f"advantage[{name}]"] = [rows[key].advantage if key in rows else None for key in keys]
        table[f"trained[{name}]"] = [key in rows and rows[key].trained for key in keys]
        table[f"tokens[{name}]"] = [_pushed(rows[key]) if key in rows else 0 for key in keys]
    return frame(table, "completion")


def _by_place(step: Step) -> dict[tuple[int, int], Any]:
    """The rows of a step by group and number within it."""
    return {place: row for place, row in zip(step.places, step.rows, strict=True) if row.age is None}


def _pushed(row: Any) -> int:
    return sum(value != 0 for value in row.values["coefficient"])


def _cosines(gradients: Mapping[str, Tensor]) -> pd.DataFrame:
    import pandas as pd
    import torch

    stacked = torch.stack(list(gradients.values()))
    stacked = stacked / stacked.norm(dim=1, keepdim=True)  # a gradient of 0 gives NaN: it has no direction
    names = list(gradients)
    return pd.DataFrame((stacked @ stacked.T).clamp(-1, 1).tolist(), index=names, columns=names)

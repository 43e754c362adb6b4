"""Every setting of a run in one table, each with where its value came from.

Precedence: call, then method, then task, then preset. A method may give a function of the settings
(`num_generations: G + 1`): it is applied to what the other layers say, the call included.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from rlkit.console import refuse_secret
from rlkit.method import Method, near

if TYPE_CHECKING:
    from rlkit.presets import Preset

OWN: dict[str, Any] = {
    "prompts_per_step": int,
    "train_size": int,
    "train_seed": int | None,
    "eval_every": int,
    "eval_size": int,
    "validation_size": int,
    "quantization": str,
    "lora_r": int,
    "lora_alpha": int,
    "lora_dropout": float,
    "lora_target_modules": str,
}
"""rlkit's own settings beside TRL's options and the method's.

`quantization`: "nf4" (4-bit weights under adapters) or "none". `lora_r`: rank of the LoRA adapters, 0 to train all
weights. `lora_alpha`: their scale, 0 for twice the rank. `lora_target_modules`: "all-linear", or names of layers joined
with + (q_proj+v_proj).

`train_seed`: what the training rows are drawn from, where every seed is to have the same ones (None: the run's seed).
`validation_size`: how many prompts of the validation split are evaluated beside those of the test split, to choose a
checkpoint by (none by default).
"""

_MANAGED = ("seed", "data_seed", "output_dir")


class Settings(Mapping[str, Any]):
    """Resolved settings: a mapping from name to value, with `origin` per name; prints as a table."""

    def __init__(self, values: Mapping[str, Any], origin: Mapping[str, str], method: Method) -> None:
        self._values = dict(values)
        self.origin = dict(origin)
        self.method = method

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def config(self) -> dict[str, Any]:
        """What goes to TRL's config."""
        return {k: v for k, v in self._values.items() if k not in OWN and k not in self.method.options}

    @property
    def options(self) -> dict[str, Any]:
        """What goes to the method as `ctx.options`."""
        return {k: v for k, v in self._values.items() if k in self.method.options}

    def rows(self) -> list[tuple[str, Any, str]]:
        """(name, value, origin), sorted by name."""
        return [(name, self._values[name], self.origin[name]) for name in sorted(self._values)]

    def __repr__(self) -> str:
        width = max(map(len, self._values), default=0)
        return "\n".join(f"{name:<{width}}  {value!r:<12}  {origin}" for name, value, origin in self.rows())

    def _repr_html_(self) -> str:
        from rlkit.show import table_html

        return table_html(["setting", "value", "from"], [(n, repr(v), o) for n, v, o in self.rows()])


@cache
def trl_options(trainer: str = "rlvr") -> dict[str, Any]:
    """Names and types of the options of TRL's GRPO, or of its distillation (imports TRL)."""
    from trl import DistillationConfig, GRPOConfig

    config = {"rlvr": GRPOConfig, "distill": DistillationConfig}[trainer]
    hints = typing.get_type_hints(config)
    return {f.name: hints[f.name] for f in dataclasses.fields(config) if f.init}


def resolve(method: Method, preset: Preset, task_config: Mapping[str, Any], overrides: Mapping[str, Any]) -> Settings:
    """Merge preset, task, method and call into `Settings`.

    Raises ValueError for an unknown name (with near ones), a value of the wrong type, or a batch that does not divide.
    """
    layers = {
        "preset": _of_family(preset.settings, method),
        "task": _of_family(task_config, method),
        "method": {**method.options, **{k: v for k, v in method.config.items() if not callable(v)}},
        "call": {name: _checked(name, value, method) for name, value in overrides.items()},
    }
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for layer, entries in layers.items():
        for name, value in entries.items():
            values[name], origin[name] = value, layer
    for name, derive in method.config.items():
        if callable(derive):
            values[name], origin[name] = derive(dict(values)), f"method, from {origin.get(name, 'the others')}"
    _set_batch(values, origin, method)
    return Settings(values, origin, method)


def _of_family(entries: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """Settings of a preset or task that the method's trainer has.

    A distillation step draws as many completions as a GRPO step, one a prompt. `beta` is left out: GRPO's is the weight
    of a KL penalty, distillation's chooses the divergence.
    """
    if method.trainer == "rlvr":
        return dict(entries)
    known = {**trl_options("distill"), **OWN}
    found = {name: value for name, value in entries.items() if name in known and name != "beta"}
    if "prompts_per_step" in found:
        found["prompts_per_step"] *= entries.get("num_generations", 1)
    return found


def _checked(name: str, value: Any, method: Method) -> Any:
    """A value of the call, coerced to the setting's type."""
    if name in method.options:
        return value
    known = {**trl_options(method.trainer), **OWN}
    refuse_secret(name, value)
    if "trust_remote_code" in name or (isinstance(value, Mapping) and "trust_remote_code" in value):
        raise ValueError(f"{name}: rlkit never runs code that comes with a model or data (trust_remote_code).")
    if name in _MANAGED[:2]:
        raise ValueError(f"{name!r} is set by `seed=`, which pairs arms by seed and prompt order.")
    if name not in known:
        raise ValueError(
            f"Unknown setting {name!r} for method {method.name!r}. {near(name, sorted([*known, *method.options]))}"
        )
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    try:
        hint = known[name]
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"Setting {name!r}: {value!r} is not a valid {hint}: {error.errors()[0]['msg']}.") from None


def _set_batch(values: dict[str, Any], origin: dict[str, str], method: Method) -> None:
    """Turn prompts per step into TRL's batch of completions per device, so that arms see equal prompts per step."""
    if origin.get("per_device_train_batch_size") == "call":
        if origin.get("prompts_per_step") == "call":
            raise ValueError("Give prompts_per_step or per_device_train_batch_size, not both.")
        values.pop("prompts_per_step", None)
        return
    distils = method.trainer == "distill"
    prompts, group = values["prompts_per_step"], 1 if distils else values["num_generations"]
    if group < 2 and not distils:
        raise ValueError(f"num_generations is {group}: a group of one has no baseline. The smallest group is 2.")
    if prompts < 1:
        raise ValueError(f"prompts_per_step is {prompts}: it must be at least 1.")
    parts = (values.get("gradient_accumulation_steps") or 1) * int(os.environ.get("WORLD_SIZE", "1"))
    if prompts * group % parts:
        fits = [p for p in range(1, prompts + parts + 1) if p * group % parts == 0]
        below, above = [p for p in fits if p < prompts][-1:], [p for p in fits if p > prompts][:1]
        raise ValueError(
            f"{prompts} prompts x {group} rollouts do not divide into {parts} micro-batches "
            "(gradient_accumulation_steps x processes). Nearest prompts_per_step: "
            f"{' or '.join(map(str, below + above))}."
        )
    values["per_device_train_batch_size"] = prompts * group // parts
    origin["per_device_train_batch_size"] = "derived from prompts_per_step" + ("" if distils else " x num_generations")

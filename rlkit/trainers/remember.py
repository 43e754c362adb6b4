"""Puts the memory of hooks back as it was, in place: whoever holds a part of it keeps holding the same object.

`state_dict` does not serve here: it leaves out what an object makes at its first use, and what it gives may be the very
lists that the next step changes.
"""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

Restore = Callable[[], Any]
FOREIGN = (torch.nn.Module, torch.optim.Optimizer, type, types.ModuleType, types.FunctionType, types.MethodType)
"""No memory of a hook, but what it may point to."""


def remember(thing: Any) -> Restore:
    """Notes what an object holds, all the way down; calling the result puts it back."""
    restores: list[Restore] = []
    _note(thing, restores, {})

    def restore() -> None:
        for one in restores:
            one()

    return restore


def _note(thing: Any, restores: list[Restore], seen: dict[int, Any]) -> None:
    if id(thing) in seen or isinstance(thing, FOREIGN) or hasattr(thing, "accelerator"):  # a trainer
        return
    seen[id(thing)] = thing  # held, so that no other object gets its id
    if isinstance(thing, torch.Tensor):
        restores.append(_of_tensor(thing))
    elif isinstance(thing, np.ndarray):
        restores.append(partial(np.copyto, thing, thing.copy()))
    elif isinstance(thing, random.Random):
        restores.append(partial(thing.setstate, thing.getstate()))
    elif isinstance(thing, torch.Generator):
        restores.append(partial(thing.set_state, thing.get_state()))
    else:
        for part in _contents(thing, restores):
            _note(part, restores, seen)


def _of_tensor(thing: torch.Tensor) -> Restore:
    old, data = thing.detach().clone(), thing.data

    def restore() -> None:
        thing.data = data
        with torch.no_grad():
            thing.copy_(old)

    return restore


def _contents(thing: Any, restores: list[Restore]) -> list[Any]:
    """What a container or an object holds; adds how to put it back."""
    parts: list[Any] = []
    if isinstance(thing, dict):
        restores.append(partial(_refill, thing, thing.update, dict(thing)))
        parts += thing.values()
    elif isinstance(thing, list | deque):
        restores.append(partial(_refill, thing, thing.extend, list(thing)))
        parts += thing
    elif isinstance(thing, set):
        restores.append(partial(_refill, thing, thing.update, set(thing)))
    elif isinstance(thing, tuple):
        parts += thing
    held = getattr(thing, "__dict__", None)
    if isinstance(held, dict):
        restores.append(partial(_refill, held, held.update, dict(held)))
        parts += held.values()
    for name in (slot for kind in type(thing).__mro__ for slot in _slots(kind)):
        if hasattr(thing, name):
            restores.append(partial(object.__setattr__, thing, name, getattr(thing, name)))
            parts.append(getattr(thing, name))
    return parts


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ()) if kind.__module__ != "builtins" else ()
    return [name for name in ([slots] if isinstance(slots, str) else slots) if name not in ("__dict__", "__weakref__")]


def _refill(thing: Any, fill: Callable[[Any], Any], old: Any) -> None:
    thing.clear()
    fill(old)

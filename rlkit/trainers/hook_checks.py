"""Guards on what hooks give back: rewards, advantages and `keep`, token weights.

Each error names the function or the method and its seam, and what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rlkit.method import Context, Method
from rlkit.trainers.compat import is_async_callable

LARGEST_REWARD = 1e15
"""Above it the square of a reward summed over a group leaves the range of 32-bit floats."""

NO_LISTS = (str, bytes, bytearray, Mapping, Set)
"""They have a length, and are no rewards."""


class CheckedReward:
    """A reward function whose results are looked at before TRL makes numbers of them. `func` is the original."""

    def __init__(self, func: Callable[..., Any], name: str) -> None:
        self.func = func
        self.__name__ = name
        self.calls = 0

    def __call__(self, *, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Rewards of the completions. Raises ValueError as `check_rewards` does."""
        with self._named(completions):
            values = self.func(completions=completions, **columns)
        return check_rewards(values, self.__name__, completions)

    @contextmanager
    def _named(self, completions: Sequence[Any]) -> Iterator[None]:
        """An error of the function itself says where it came from."""
        self.calls += 1
        try:
            yield
        except Exception as error:
            error.add_note(f"in reward function {self.__name__!r}, call {self.calls}, {len(completions)} completions")
            raise


class CheckedAsyncReward(CheckedReward):
    """The same for a reward function that is awaited."""

    async def __call__(  # type: ignore[override]
        self, *, completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Rewards of the completions. Raises ValueError as `check_rewards` does."""
        with self._named(completions):
            values = await self.func(completions=completions, **columns)
        return check_rewards(values, self.__name__, completions)


def checked(func: Any, name: str) -> Any:
    """The reward function, looked after; a reward model stays as it is."""
    if isinstance(func, torch.nn.Module):
        return func
    return CheckedAsyncReward(func, name) if is_async_callable(func) else CheckedReward(func, name)


def check_rewards(values: Any, name: str, completions: Sequence[Any]) -> list[float | None]:
    """Rewards as a list of finite numbers, or None where a completion cannot be scored.

    Raises:
        ValueError: naming the function, for NaN, infinity, a number too large for 32-bit arithmetic, something that is
            no number, or a wrong count.

    """
    who = f"Reward function {name!r}"
    # the keys of a dict, the bytes of a text and the members of a set would pass for rewards in some order
    if isinstance(values, NO_LISTS) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
        raise ValueError(
            f"{who} gave {type(values).__name__} {values!r:.60}; a list with one number a completion is needed."
        )
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(values) != len(completions):
        raise ValueError(f"{who} gave {len(values)} rewards for {len(completions)} completions; one each is needed.")
    return [None if v is None else _number(v, who, c) for v, c in zip(values, completions, strict=True)]


def _number(value: Any, who: str, completion: Any) -> float:
    where = f"for the completion {completion!r:.80}"
    wrong = ValueError(f"{who} gave {value!r:.40} ({type(value).__name__}) {where}; a number or None is needed.")
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise wrong
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # an array of several numbers has `__float__` as well
        raise wrong from None
    if not math.isfinite(number):
        raise ValueError(f"{who} gave {number} {where}. Give None for a completion that cannot be scored.")
    if abs(number) > LARGEST_REWARD:
        raise ValueError(f"{who} gave {number:g} {where}: too large for 32-bit arithmetic. Scale it below 1e15.")
    return number


def check_advantage(result: Any, ctx: Context, method: Method) -> tuple[Tensor | None, Tensor | None]:
    """What an `advantage` hook gave, as finite (N, G) or (B, T) advantages and an optional (N, G) bool keep.

    Advantages of rollouts that no function could score become 0. None stands for the trainer's own.

    Raises:
        ValueError: naming the method, the seam and the expected shape.

    """
    who = f"Method {method.name!r}, seam 'advantage'"
    A, keep = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    assert ctx.rewards is not None and ctx.lengths is not None and ctx.valid is not None
    shape, tokens = tuple(ctx.rewards.shape), (int(ctx.valid.sum()), int(ctx.lengths.max()))
    if A is None:
        return None, _checked_keep(keep, ctx.valid, who)
    if not isinstance(A, Tensor) or tuple(A.shape) not in (shape, tokens):
        got = tuple(A.shape) if isinstance(A, Tensor) else type(A).__name__
        raise ValueError(f"{who}: expected advantages of shape (N, G) = {shape} or (B, T) = {tokens}, got {got}.")
    A = A.detach().float().to(ctx.rewards.device)
    unscorable = ctx.rewards.isnan()
    A = A.masked_fill(unscorable if tuple(A.shape) == shape else unscorable[ctx.valid][:, None], 0.0)
    if not A.isfinite().all():
        raise ValueError(f"{who}: {int((~A.isfinite()).sum())} of {A.numel()} advantages are NaN or infinite.")
    return A, _checked_keep(keep, ctx.valid, who)


def _checked_keep(keep: Any, valid: Tensor, who: str) -> Tensor | None:
    if keep is None:
        return None
    shape = tuple(valid.shape)
    if not isinstance(keep, Tensor) or keep.dtype != torch.bool or tuple(keep.shape) != shape:
        got = f"{keep.dtype} {tuple(keep.shape)}" if isinstance(keep, Tensor) else type(keep).__name__
        raise ValueError(f"{who}: expected keep as a bool tensor of shape (N, G) = {shape}, got {got}.")
    keep = keep.to(valid.device)
    if not (keep & valid).any():
        raise ValueError(f"{who}: keep removes every rollout of the batch; at least one row has to stay.")
    return keep


def check_weight(weight: Any, ctx: Context, method: Method) -> Tensor:
    """What a `token_weight` hook gave, as finite (B, T) weights of at least 0.

    Raises:
        ValueError: naming the method, the seam and the expected shape.

    """
    who = f"Method {method.name!r}, seam 'token_weight'"
    assert ctx.mask is not None
    shape = tuple(ctx.mask.shape)
    if not isinstance(weight, Tensor) or tuple(weight.shape) != shape:
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(f"{who}: expected weights of shape (B, T) = {shape}, got {got}.")
    weight = weight.detach().float().to(ctx.mask.device).masked_fill(ctx.mask == 0, 0.0)
    if not weight.isfinite().all():
        raise ValueError(f"{who}: {int((~weight.isfinite()).sum())} of {weight.numel()} weights are NaN or infinite.")
    if (weight < 0).any():
        raise ValueError(
            f"{who}: the smallest weight is {float(weight.min()):g}. Weights are at least 0: a negative one would turn "
            "the advantage's sign, and with it the side on which the ratio is clipped."
        )
    return weight

"""What some of the tested releases of TRL lack or call otherwise: the one place that knows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

try:
    from trl.trainer.utils import is_async_callable
except ImportError:  # before TRL 1.14

    def is_async_callable(func: Callable[..., Any]) -> bool:
        """Whether a reward is to be awaited: an async function, or an object with an async `__call__`."""
        return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


__all__ = ["is_async_callable"]

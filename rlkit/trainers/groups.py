"""Groups of rollouts, of one size or several: between one entry a rollout (B,) and one row a prompt (N, G).

N prompts, g_1..g_N rollouts of each, B their sum, G the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-4
"""TRL's constant beside a standard deviation."""


@dataclass(frozen=True)
class Groups:
    """How many rollouts each prompt has, in order."""

    sizes: tuple[int, ...]

    @property
    def of_rows(self) -> list[int]:
        """For each of B rows the number of its prompt."""
        return [n for n, size in enumerate(self.sizes) for _ in range(size)]

    def are_all(self, size: int) -> bool:
        """Whether every group has this size."""
        return set(self.sizes) == {size}

    def valid(self, device: torch.device) -> Tensor:
        """(N, G) bool: where there is a rollout."""
        return torch.arange(max(self.sizes), device=device) < torch.tensor(self.sizes, device=device)[:, None]

    def grid(self, values: Tensor, fill: float) -> Tensor:
        """(B, ...) -> (N, G, ...), `fill` where there is no rollout. `grid[valid]` is the way back."""
        valid = self.valid(values.device)
        out = torch.full((*valid.shape, *values.shape[1:]), fill, dtype=values.dtype, device=values.device)
        out[valid] = values
        return out

    def part(self, start: int, rows: int) -> list[int]:
        """The groups of the rows from `start`, by number. Raises ValueError where a group is cut."""
        edges = {0}
        for size in self.sizes:
            edges.add(max(edges) + size)
        if not {start, start + rows} <= edges:
            raise ValueError(f"rows {start} to {start + rows - 1} hold a part of a group only")
        return self.of_rows[start : start + rows]


def spread(rewards: Tensor) -> Tensor:
    """(N, 1) standard deviation of each row over what is not NaN, one less in the denominator; NaN under two values."""
    centered = rewards - rewards.nanmean(1, keepdim=True)
    freedom = (~rewards.isnan()).sum(1, keepdim=True) - 1
    return torch.where(freedom > 0, (centered**2).nansum(1, keepdim=True) / freedom, torch.nan).sqrt()


def advantages(rewards: Tensor, per_func: Tensor, weights: Tensor, scale: str, each: bool) -> tuple[Tensor, Tensor]:
    """TRL's advantages for groups of any sizes.

    Args:
        rewards: (N, G) weighted sums, NaN where there is no rollout or no function could score it.
        per_func: (N, G, F).
        weights: (F,) of the reward functions.
        scale: TRL's `scale_rewards`.
        each: normalise each function by itself before they are added (TRL's "normalize_then_sum").

    Returns:
        (N, G) advantages, 0 where the reward is NaN, and (N, G) bool: whether the standard deviation is 0.

    """
    if each:
        mean = per_func.nanmean(1, keepdim=True)
        std = torch.stack([spread(per_func[..., f]) for f in range(per_func.size(2))], 2)
        total = ((per_func - mean) / (std + EPSILON) * weights).nansum(2)
        rewards, scale = total.masked_fill(rewards.isnan(), torch.nan), "batch"
        center = rewards.nanmean()
    else:
        center = rewards.nanmean(1, keepdim=True)
    std = spread(rewards.reshape(1, -1) if scale == "batch" else rewards).expand_as(rewards)
    A = rewards - center
    if scale != "none":
        A = A / (std + EPSILON)
    return A.nan_to_num(0.0), torch.isclose(std, torch.zeros_like(std))

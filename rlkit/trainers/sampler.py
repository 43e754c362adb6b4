"""TRL's prompt order, addressable by epoch.

TRL's own sampler has a generator that only moves forward: after a resume it starts again with epoch 0's order, so a run
resumed in its second epoch sees other prompts than an uninterrupted one. The order here is the same, epoch by epoch.
"""

from __future__ import annotations

import torch
from trl.trainer.utils import RepeatSampler


class EpochSampler(RepeatSampler):
    """`RepeatSampler` that can be set to the start of any epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration give epoch `epoch`'s order (from 0)."""
        if not self.shuffle:
            return
        self.generator.manual_seed(self.seed)
        for _ in range(epoch):
            torch.randperm(self.num_samples, generator=self.generator)

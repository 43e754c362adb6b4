"""Guide: groups that fail are drawn again under a hint and trained under the plain prompt.

Paper: arXiv 2506.13923 (released code read). For a prompt x without a right rollout, with a hint h:

    y ~ pi_old(. | x, h) replaces the failed group;   rho_t = pi(y_t | x) / pi_old(y_t | x, h)
    hinted rows    A s(rho), s = rho / (rho + gamma), gamma = 90th percentile of the hinted ratios, detached; no clip
    other rows     min(rho A, clip(rho, .8, 1.2) A)
    A is the z-score in the group that stays; loss a mean over tokens

What is different here, and why. The paper's hints are texts written beforehand. Here a hint is the first half of a
worked solution, set behind the prompt, from which a base that reads no instructions goes on. What is trained is the
hint and the rest together (`restate=True`): told how to begin, a policy begins so with probability 1, hence 0 as old
log-prob of the hint's tokens. With hints in words set `restate=False`: the completion stands alone. The percentile is
over all positions of a micro-batch of one row there, padding included; here over the hinted tokens of the
accumulation window. Groups without spread stay, with advantage 0; there they are dropped and drawing goes on until
the batch is full. The failed rollouts are charged to `generated_tokens`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def shaped(ratio: Tensor, hinted: Tensor, percentile: float = 0.9) -> Tensor:
    """Guide's s(rho) = rho / (rho + gamma), gamma the percentile of the ratios in `hinted`, at least 1e-4.

    Args:
        ratio: (B, T) pi / pi_old.
        hinted: (B, T) bool, the tokens of hinted rows.
        percentile: 0 to 1, linear between ranks.

    Returns:
        (B, T); the gradient goes through `ratio`, not through gamma.

    """
    if not hinted.any():
        return ratio
    gamma = torch.quantile(ratio.detach()[hinted].float(), percentile).clamp(min=1e-4)
    return ratio / (ratio + gamma)

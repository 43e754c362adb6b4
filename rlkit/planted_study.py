"""What each token of a planted rollout is like, which tokens a selector keeps, and where the gradient comes from.

The roles are known by construction (`rlkit.tasks.planted`): a selection can be checked against them without training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from rlkit.trainers.distill import DistillTrainer


def token_table(
    selectors: Mapping[str, float], *, model: str = "planted_student", rollouts: int = 64, seed: int = 0
) -> pd.DataFrame:
    """One row a token of the untrained student's rollouts.

    Args:
        selectors: method name to the retention that it is shown with.
        model: the student.
        rollouts: as many as an optimiser step has: scores are normalised over them.
        seed: seeds prompts and sampling.

    Returns:
        Columns `rollout`, `position`, `token`, `role`, `entropy` (over ln V, 0 to 1), `divergence` and `forward`
        (nats), and 1 or 0 under the name of each selector: whether it keeps the token.
    """
    import pandas as pd

    trainer = _trainer(model, seed)
    seen, roles = _seen(trainer, rollouts, seed)
    kept = {name: selected(name, share, seen, seed) for name, share in selectors.items()}
    rows = [
        {
            "rollout": i,
            "position": t,
            "token": token or "end",
            "role": roles[i][t],
            "entropy": round(float(seen["entropies"][i, t]) / math.log(trainer.vocabulary), 4),
            "divergence": round(float(seen["divergence"][i, t]), 4),
            "forward": round(float(seen["forward"][i, t]), 4),
            **{name: int(mask[i, t]) for name, mask in kept.items()},
        }
        for i, tokens in enumerate(seen["tokens"])
        for t, token in enumerate(tokens)
    ]
    return pd.DataFrame(rows)


def kept_by_role(
    selectors: Mapping[str, Sequence[float]],
    *,
    model: str = "planted_student",
    rollouts: int = 64,
    batches: int = 16,
    seed: int = 0,
) -> pd.DataFrame:
    """What selectors keep of each role, in batches as large as an optimiser step.

    Args:
        selectors: method name to retentions.
        model: the student.
        rollouts: of a batch.
        batches: how many, each with prompts and draws of its own.
        seed: seeds the first batch; the others follow.

    Returns:
        Columns `selector`, `retention`, `batch`, `role`, `share` (of the kept tokens that have the role) and `recall`
        (of the role's tokens that are kept).
    """
    import pandas as pd

    trainer = _trainer(model, seed)
    found = []
    for batch in range(seed, seed + batches):
        seen, roles = _seen(trainer, rollouts, batch)
        masks = _role_masks(roles, seen["mask"])
        for name, retentions in selectors.items():
            for share in retentions:
                kept = selected(name, share, seen, batch)
                same = {"selector": name, "retention": share, "batch": batch}
                for role, mask in masks.items():
                    both = float((kept * mask).sum())
                    found.append({**same, "role": role, "share": both / float(kept.sum())})
                    found[-1]["recall"] = both / max(1.0, float(mask.sum()))
    return pd.DataFrame(found)


def gradient_by_role(*, model: str, rollouts: int = 256, seed: int = 0) -> pd.DataFrame:
    """Norm of the gradient that each role's tokens give to the loss over all tokens, for both directions of the KL.

    Returns:
        Columns `role`, `direction` ("reverse" or "forward"), `norm` (of the gradient of the role's part of the mean
        over all tokens) and `divergence` (mean over the role's tokens, nats).
    """
    import pandas as pd

    trainer = _trainer(model, seed)
    seen, roles = _seen(trainer, rollouts, seed)
    found = []
    for role, mask in _role_masks(roles, seen["mask"]).items():
        share = float(mask.sum() / seen["mask"].sum())
        for direction, beta, name in (("reverse", 1.0, "divergence"), ("forward", 0.0, "forward")):
            norm = share * trainer.gradient_norm(seen, mask, beta)
            mean = float((seen[name] * mask).sum() / mask.sum())
            found.append({"role": role, "direction": direction, "norm": norm, "divergence": mean})
    return pd.DataFrame(found)


def selected(name: str, retention: float, seen: Mapping[str, Any], seed: int = 0) -> Tensor:
    """(B, T) what a method's `token_weight` gives on rollouts that were looked at: 1 where a token is kept."""
    from rlkit.method import Context, get_method

    method = get_method(name).with_options(retention=retention)
    assert method.token_weight is not None
    scores = {score: seen[score] for score in ("logps", "entropies", "divergence", "forward", "mask")}
    kept: Tensor = method.token_weight(Context(seed=seed, options=method.options, **scores))
    return kept * seen["mask"]


def _trainer(model: str, seed: int) -> DistillTrainer:
    """A trainer that is never trained: it rolls out and scores."""
    import rlkit

    built: DistillTrainer = rlkit.trainer("opd", preset="smoke", task="planted", model=model, seed=seed)
    return built


def _seen(trainer: DistillTrainer, rollouts: int, seed: int) -> tuple[dict[str, Any], list[list[str]]]:
    """Rollouts on train problems, with scores, and the role of each token."""
    from rlkit.tasks.base import get_task
    from rlkit.tasks.planted import roles

    rows = get_task("planted").dataset("train", rollouts, seed=seed)
    seen = trainer.examine(list(rows), seed=seed)
    return seen, [roles(p, len(t)) for p, t in zip(rows["prompt"], seen["tokens"], strict=True)]


def _role_masks(roles: Sequence[Sequence[str]], mask: Tensor) -> dict[str, Tensor]:
    """(B, T) for each role that occurs: 1 at its tokens."""
    import torch

    from rlkit.tasks.planted import ROLES

    found = {}
    for role in ROLES:
        here = torch.zeros_like(mask, dtype=torch.float32)
        for i, row in enumerate(roles):
            here[i, : len(row)] = torch.tensor([float(name == role) for name in row])
        if (here * mask).any():
            found[role] = here * mask
    return found

"""Guards on what the seams around generation and loss give back: plans, rollouts, batches, objectives.

Each error names the method, the seam, and what was expected.
"""

from __future__ import annotations

import logging
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from rlkit.method import Method
from rlkit.trainers import rows

logger = logging.getLogger(__name__)

SURROGATE_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")
IDS = ("prompt_ids", "completion_ids")
DRAWN = ("sample_prompt_ids", "old_logps", "logprobs")
"""What a rollout row may leave out, or hold as None."""
TAKEN = frozenset({"counted", "objective", "num_items_in_batch", "counted_per_micro_batch", "env_mask"})
"""Names that extras of a rollout cannot have."""


def who(method: Method, seam: str) -> str:
    """The start of an error message."""
    return f"Method {method.name!r}, seam {seam!r}"


def check_plan(plan: Any, count: int, total: int, method: Method) -> list[tuple[Mapping[str, Any], int]]:
    """What a `sampler` hook gave: rows with how many rollouts each, `total` rollouts in all.

    Raises:
        ValueError: naming the method and the seam.

    """
    start = f"{who(method, 'sampler')}: expected [(row, g), ...]"
    if not isinstance(plan, Sequence) or not all(isinstance(x, Sequence) and len(x) == 2 for x in plan):
        raise ValueError(f"{start}, got {type(plan).__name__}.")
    for row, size in plan:
        if not isinstance(row, Mapping) or "prompt" not in row:
            raise ValueError(f"{start} with rows that have a column 'prompt', got {row!r:.80}.")
        if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
            raise ValueError(f"{start} with whole numbers g of at least 1, got {size!r}.")
    sizes = [int(size) for _, size in plan]
    if sum(sizes) != total:
        raise ValueError(
            f"{start} with {total} rollouts in all ({count} prompts x {total // count}, so that a step always costs "
            f"the same), got {sum(sizes)} for {len(sizes)} prompts."
        )
    return [(row, size) for (row, _), size in zip(plan, sizes, strict=True)]


def check_rollouts(got: Any, count: int, longest: int, columns: set[str], method: Method) -> list[dict[str, Any]]:
    """What a `rollout` hook gave: a dict for each of `count` rows; token ids as lists of int.

    Args:
        got: what to look at.
        count: rows of this rank.
        longest: most tokens of a completion.
        columns: names of the data's columns.
        method: for the message.

    Raises:
        ValueError: naming the method, the seam and the row.

    """
    start = who(method, "rollout")
    if not isinstance(got, Sequence) or len(got) != count or not all(isinstance(row, Mapping) for row in got):
        what = f"{len(got)} of {type(got).__name__}" if isinstance(got, Sequence) else type(got).__name__
        raise ValueError(f"{start}: expected one dict for each of {count} rows, got {what}.")
    names = {name for row in got for name in row} - set(DRAWN)
    for i, row in enumerate(got):
        missing = sorted({*names, *IDS} - set(row))
        if missing:
            raise ValueError(f"{start}: row {i} has no {missing[0]!r}; every row needs it.")
        for name in IDS:
            if not len(row[name]) or not all(hasattr(token, "__index__") for token in row[name]):
                raise ValueError(
                    f"{start}: expected {name} of row {i} as token ids, at least one, got {row[name]!r:.60}."
                )
        if len(row["completion_ids"]) > longest:
            raise ValueError(
                f"{start}: the completion of row {i} has {len(row['completion_ids'])} tokens, and "
                f"max_completion_length is {longest}: cut it, or raise the length."
            )
        _check_old(row.get("old_logps"), len(row["completion_ids"]), f"{start}: expected old_logps of row {i}")
    clash = sorted((names - set(IDS)) & {*TAKEN, *rows.PROMPT_KEYS, *rows.COMPLETION_KEYS, *columns})
    if clash:
        raise ValueError(f"{start}: {clash[0]!r} is a column of the data or the trainer's own name. Take another one.")
    return [{**row, **{name: [int(token) for token in row[name]] for name in IDS}} for row in got]


def _check_old(old: Any, tokens: int, start: str) -> None:
    if old is not None and (len(old) > tokens or not all(math.isfinite(x) for x in old)):
        raise ValueError(
            f"{start} as at most {tokens} finite numbers, one for each of the first completion tokens (the others are "
            f"scored), got {old!r:.60} ({len(old)})."
        )


def numeric_extras(got: Sequence[Mapping[str, Any]], method: Method) -> dict[str, list[float]]:
    """What rollout rows hold beside tokens and log-probs, as far as it is numbers: it travels to the loss.

    Raises:
        ValueError: one is not finite.

    """
    names = [name for name in got[0] if name not in (*IDS, *DRAWN)]
    columns = {name: [row[name] for row in got] for name in names}
    found = {name: list(map(float, v)) for name, v in columns.items() if all(isinstance(x, numbers.Real) for x in v)}
    for name, values in found.items():
        if not all(map(math.isfinite, values)):
            raise ValueError(f"{who(method, 'rollout')}: expected finite numbers in {name!r}, got {values!r:.60}.")
    return found


def check_batch(batch: Any, parts: int, method: Method) -> rows.Batch:
    """What a `batch` hook gave: rows that fit together, a multiple of `parts` of them.

    Raises:
        ValueError: naming the method, the seam, the entry and the expected shape.

    """
    start = who(method, "batch")
    needed = (*rows.PROMPT_KEYS, "completion_ids", "completion_mask", "advantages", "counted")
    missing = [key for key in needed if not isinstance(batch, Mapping) or key not in batch]
    if missing:
        raise ValueError(f"{start}: expected the batch as a dict with {', '.join(needed)}; {missing[0]!r} is missing.")
    B, T = batch["completion_ids"].shape
    if not B:
        raise ValueError(f"{start}: the batch is empty; at least {parts} rows have to stay.")
    if B % parts:
        raise ValueError(
            f"{start}: {B} rows do not divide into steps_per_generation={parts} parts: rows would be lost in silence. "
            f"Nearest: {B // parts * parts or parts} or {(B // parts + 1) * parts} rows."
        )
    for key, value in batch.items():
        shapes: list[tuple[int, ...]] = [(B, T)] if key in ("completion_mask", "tool_mask", *rows.LOGPS) else []
        shapes += [(B,), (B, T)] if key == "advantages" else [(B,)] if key == "counted" else []
        _check_entry(key, value, B, shapes, start)
    return _in_order(batch, needed)


def _check_entry(key: str, value: Any, count: int, shapes: list[tuple[int, ...]], start: str) -> None:
    per_row = isinstance(value, list) or (isinstance(value, Tensor) and value.ndim > 0)
    if per_row and len(value) != count:
        raise ValueError(f"{start}: {key!r} has {len(value)} rows, and completion_ids has {count}.")
    if shapes and tuple(value.shape) not in shapes:
        raise ValueError(
            f"{start}: expected {key!r} of shape {' or '.join(map(str, shapes))}, got {tuple(value.shape)}."
        )
    if shapes and value.is_floating_point() and not value.isfinite().all():
        raise ValueError(f"{start}: {int((~value.isfinite()).sum())} values of {key!r} are NaN or infinite.")


def _in_order(batch: Mapping[str, Any], first: Sequence[str]) -> rows.Batch:
    """What has rows in front: TRL takes the length of the batch from the first entry."""
    return {**{key: batch[key] for key in first}, **batch}


def check_objective(objective: Any, shape: tuple[int, ...], method: Method) -> Tensor:
    """What a `surrogate` hook gave: an objective (B, T) that depends on the current log-probs.

    Raises:
        ValueError: naming the method, the seam and the expected shape.

    """
    start = who(method, "surrogate")
    if not isinstance(objective, Tensor) or tuple(objective.shape) != shape:
        got = tuple(objective.shape) if isinstance(objective, Tensor) else type(objective).__name__
        raise ValueError(f"{start}: expected an objective of shape (B, T) = {shape}, got {got}.")
    if not objective.requires_grad:
        raise ValueError(f"{start}: the objective does not depend on ctx.logps, so it has no gradient.")
    return objective


def check_coefficients(objective: Tensor, found: Tensor | None, mask: Tensor, method: Method) -> Tensor:
    """The derivative of an objective (B, T), 0 outside the mask. Raises ValueError where one of them is not finite."""
    if found is None:
        raise ValueError(f"{who(method, 'surrogate')}: the objective does not depend on ctx.logps: it has no gradient.")
    found = found.masked_fill(mask == 0, 0.0)
    if not (found.isfinite() & objective.isfinite()).all():
        bad = int((~(found.isfinite() & objective.isfinite())).sum())
        raise ValueError(
            f"{who(method, 'surrogate')}: the objective or its derivative is NaN or infinite at {bad} of "
            f"{int(mask.sum())} tokens. A common cause: exp of a large log ratio; clamp it."
        )
    return found


def check_fit(method: Method, trainer: Any) -> None:
    """Raise ValueError for settings under which a method's seams would train something else than they say."""
    args, wrong = trainer.args, []
    if method.surrogate is not None:
        wrong = [
            (trainer.loss_type not in SURROGATE_LOSSES, f"loss_type one of {', '.join(SURROGATE_LOSSES)}"),
            (trainer.importance_sampling_level != "token", "importance_sampling_level='token'"),
            (trainer.off_policy_mask_threshold is not None, "no off_policy_mask_threshold"),
            (args.delta is not None, "no delta"),
            (trainer.beta != 0 and args.use_bias_correction_kl, "use_bias_correction_kl=False"),
        ]
    for is_wrong, needed in wrong:
        if is_wrong:
            raise ValueError(f"{who(method, 'surrogate')}: it replaces TRL's ratio and clip, and needs {needed}.")
    if method.advantage is not None and args.multi_objective_aggregation != "sum_then_normalize":
        logger.warning(
            "%s: it sees the weighted sum of rewards; multi_objective_aggregation=%r counts only where it gives None.",
            who(method, "advantage"),
            args.multi_objective_aggregation,
        )
    if method.pooled and trainer.generate_every % args.gradient_accumulation_steps:
        raise ValueError(
            f"Method {method.name!r} is pooled: an optimiser step of {args.gradient_accumulation_steps} micro-batches "
            f"has to lie within one generation batch of {trainer.generate_every} (steps_per_generation x "
            "num_iterations). Make the second a multiple of the first."
        )
    by_row = method.rollout, method.batch, method.pooled or None, method.needs or None
    if trainer._is_vlm and any(x is not None for x in by_row):
        raise ValueError(f"Method {method.name!r} moves or scores rows by their tokens, which leaves images out.")

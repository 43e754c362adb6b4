"""What a distillation loss keeps in memory: an explicit dense loss, TRL's kernel, and the loss over kept rows.

Measured at a real vocabulary with random heads and hidden states on a CPU: no model is loaded. Counted is every byte
that torch allocates, by torch's own profiler. `retained` is what is still there when the loss is known, and so beside
the rest of the model in the backward pass; `peak` is the most that was there at any time of forward and backward.
Hidden states and heads are given and do not count, and the heads are frozen: the gradient of a trained head, one number
a parameter, comes on top of all of them alike.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlkit import divergences

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import Tensor

Loss = Callable[["Tensor", "Tensor", "Tensor", "Tensor", "Tensor"], "Tensor"]
"""`(student hidden (N, H), student head (V, H), teacher hidden, teacher head, kept (N,) bool) -> loss`."""


def dense(student: Tensor, head: Tensor, teacher: Tensor, teachers_head: Tensor, kept: Tensor) -> Tensor:
    """The loss written down as it stands: 32-bit logits of all tokens, log-softmax and divergence of the kept ones."""
    logits, taught = student @ head.T, teacher @ teachers_head.T
    return divergences.reverse_kl(logits[kept], taught[kept]).mean()


def kernel(student: Tensor, head: Tensor, teacher: Tensor, teachers_head: Tensor, kept: Tensor) -> Tensor:
    """TRL's chunked kernel on all tokens, the others weighted with 0."""
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    found, _ = ChunkedDivergenceFunction.apply(student, head, None, teacher, teachers_head, None, 1.0)
    return (found * kept).sum() / kept.sum()


def kept_rows(student: Tensor, head: Tensor, teacher: Tensor, teachers_head: Tensor, kept: Tensor) -> Tensor:
    """The loss of `DistillTrainer`: chunks of kept rows, the gradient worked out on the way."""
    from rlkit.trainers.heads import Head, Job, KeptLoss

    def reverse(mine: Tensor, theirs: Tensor | None, _: slice) -> Tensor:
        assert theirs is not None
        return divergences.reverse_kl(mine, theirs)

    share = kept[kept].float() / kept.sum()
    job = Job(Head(head, None), Head(teachers_head, None), teacher[kept], share, 1.0, reverse)
    loss, _ = KeptLoss.apply(student[kept], head, None, job)
    return loss


LOSSES: dict[str, Loss] = {"dense": dense, "TRL's kernel": kernel, "kept rows": kept_rows}


def loss_memory(
    losses: Sequence[str] = tuple(LOSSES),
    retention: Sequence[float] = (1.0, 0.5, 0.2, 0.1),
    *,
    tokens: int = 64,
    vocabulary: int = 151_936,
    width: int = 64,
    seed: int = 0,
) -> pd.DataFrame:
    """Bytes per token and vocabulary entry of the whole batch, for each loss and share of kept tokens.

    Args:
        losses: names in `LOSSES`.
        retention: shares of tokens that are kept.
        tokens: N, tokens of the batch.
        vocabulary: V.
        width: H of student and teacher.
        seed: seeds hidden states and heads.

    Returns:
        Columns `loss`, `retention`, `kept` (tokens), `retained` and `peak` (bytes / (N V)), and `value`, the loss in
        nats.
    """
    import pandas as pd
    import torch

    random = torch.Generator().manual_seed(seed)
    head, other = (torch.randn(vocabulary, width, generator=random) / width**0.5 for _ in range(2))
    hidden, taught = (torch.randn(tokens, width, generator=random) for _ in range(2))
    order = torch.randperm(tokens, generator=random)
    found = []
    for name in losses:
        for share in retention:
            kept = torch.zeros(tokens, dtype=torch.bool)
            kept[order[: max(1, int(share * tokens))]] = True
            retained, peak, value = _measured(LOSSES[name], hidden, head, taught, other, kept)
            size = tokens * vocabulary
            memory = {"kept": int(kept.sum()), "retained": retained / size, "peak": peak / size}
            found.append({"loss": name, "retention": share, **memory, "value": value})
    return pd.DataFrame(found)


def _measured(loss: Loss, hidden: Tensor, *given: Any) -> tuple[int, int, float]:
    """Bytes still there after the forward pass, the most at any time, and the loss."""
    student = hidden.clone().requires_grad_()
    value, retained, high = _counted(lambda: loss(student, *given))
    _, _, later = _counted(value.backward)
    assert student.grad is not None
    return retained, max(high, retained + later), value.item()


def _counted(call: Callable[[], Any]) -> tuple[Any, int, int]:
    """What a call gives, the bytes that it has allocated and not freed, and the largest such number on the way."""
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _quiet():
        profiler.start()
    try:
        result = call()
    finally:
        with _quiet():
            profiler.stop()
    return result, *_allocations(profiler)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing on the process's error stream: some builds of the profiler print a line at each start and stop."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _allocations(profiled: torch.profiler.profile) -> tuple[int, int]:
    """Bytes that were allocated and not freed, and the largest such number on the way."""
    now = high = 0
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()  # type: ignore[attr-defined]  # there, but not in torch's stub
        high = max(high, now)
    return now, high

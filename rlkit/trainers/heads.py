"""From hidden states to logits, some rows at a time, and the loss over kept rows.

TRL's divergence kernel walks over all positions. Here a head is applied to chunks of the rows that are asked for, and
the loss works out its gradient chunk by chunk while it goes forward: what is kept for the backward pass is one gradient
a kept hidden state, never logits. Cost and memory so fall with the number of kept rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ELEMENTS = {"cpu": 2**22, "other": 2**26}
"""Logits of one model in a chunk, by kind of device: 16 MB on a CPU, where smaller ones were slower and larger ones no
faster (32,768 and 151,936 entries)."""


@dataclass(frozen=True)
class Head:
    """The map from hidden states to logits of one model."""

    weight: Tensor
    """(V, H)."""
    bias: Tensor | None
    """(V,)."""
    scale: float = 1.0
    softcap: float | None = None

    def project(self, hidden: Tensor) -> Tensor:
        """(R, H) -> (R, V) in 32-bit floats, before scale and softcap; without gradient."""
        weight = self.weight.detach()
        if hidden.is_cuda and hidden.dtype in (torch.float16, torch.bfloat16):
            out = torch.mm(hidden, weight.t(), out_dtype=torch.float32)
        else:
            out = hidden.float() @ weight.float().t()
        return out if self.bias is None else out.add_(self.bias.detach().float())

    def logits(self, projected: Tensor, temperature: float) -> Tensor:
        """Logits (R, V) at a temperature from what `project` gave; differentiable."""
        if self.scale != 1:
            projected = projected * self.scale
        if self.softcap:
            projected = self.softcap * torch.tanh(projected / self.softcap)
        return projected if temperature == 1 else projected / temperature


def head_of(model: Any, vocabulary: int, dtype: torch.dtype) -> Head:
    """A model's head, cut to the first `vocabulary` entries; weights in the dtype in which it is multiplied.

    Raises:
        ValueError: a model whose logits are no linear map of its last hidden states.

    """
    layer, config = model.get_output_embeddings(), model.config.get_text_config()
    if layer is None or not isinstance(getattr(layer, "weight", None), Tensor):
        raise ValueError(f"{type(model).__name__} has no output layer with weights: it cannot be distilled.")
    weight, bias = (whole(x) for x in (layer.weight, getattr(layer, "bias", None)))
    assert weight is not None
    cut = None if bias is None else bias[:vocabulary]
    return Head(
        weight[:vocabulary].to(dtype), cut, logit_scale(config), getattr(config, "final_logit_softcapping", None)
    )


def whole(tensor: Tensor | None) -> Tensor | None:
    """A sharded weight (FSDP2) as one tensor."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def logit_scale(config: Any) -> float:
    """What a model multiplies its logits by: the names of Cohere, Muse, Falcon-H1, Granite and others."""
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        if getattr(config, name, None) is not None:
            return float(getattr(config, name))
    scaling = getattr(config, "logits_scaling", None)
    if scaling is None:
        return 1.0
    return float(scaling) if config.model_type == "hyperclovax" else 1 / float(scaling)


def chunks(rows: int, vocabulary: int, device: torch.device) -> Iterator[slice]:
    """Slices of `rows`, each small enough for its logits."""
    size = max(1, ELEMENTS["cpu" if device.type == "cpu" else "other"] // vocabulary)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


@dataclass
class Job:
    """The kept rows of a micro-batch and what is done with them. R rows, each one position of a completion."""

    student: Head
    teacher: Head | None
    teacher_hidden: Tensor | None
    """(R, H of the teacher)."""
    weights: Tensor
    """(R,) share of each row in the loss."""
    temperature: float
    divergence: Callable[[Tensor, Any, slice], Tensor]
    """`(student_logits, teacher_logits, rows) -> (rows,)`; without a teacher its logits are None."""
    observe: Callable[[Tensor, Any, slice], None] | None = None
    """Looks at the logits of each chunk, without gradient."""
    tokens: Tensor | None = None
    """(R,) the drawn tokens, where the push on them is wanted."""
    push: Tensor | None = None
    """(R,) filled with minus the derivative of the loss by what `project` gave for the drawn token."""

    def logits(self, hidden: Tensor, part: slice) -> tuple[Tensor, Tensor | None]:
        """What `project` gave for the student, and the teacher's logits, of some rows."""
        taught = None
        if self.teacher is not None and self.teacher_hidden is not None:
            taught = self.teacher.logits(self.teacher.project(self.teacher_hidden[part]), self.temperature)
        return self.student.project(hidden[part]), taught


class KeptLoss(torch.autograd.Function):
    """`sum_r weights_r divergence_r` over kept rows, differentiable in the student's hidden states and head.

    Gives the loss and the divergences (R,), which carry no gradient.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, job: Job) -> tuple[Tensor, Tensor]:
        """Loss, and divergences (R,), from hidden states (R, H) and the head's parameters."""
        needs = ctx.needs_input_grad
        grads = [
            torch.zeros_like(x, dtype=torch.float32) if x is not None and need else None
            for x, need in zip((hidden, weight, bias), needs[:3], strict=True)
        ]
        values = torch.zeros(len(hidden), device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            for part in chunks(len(hidden), len(job.student.weight), hidden.device):
                values[part], grad = _chunk(hidden, job, part)
                _add(grads, grad, hidden, part, job.student)
        dtypes = [None if x is None else x.dtype for x in (hidden, weight, bias)]
        ctx.grads = [None if g is None else g.to(dtype) for g, dtype in zip(grads, dtypes, strict=True)]
        ctx.mark_non_differentiable(values)
        return (values * job.weights).sum(), values

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        """What `forward` has worked out, times the gradient of the loss."""
        grads, ctx.grads = ctx.grads, None
        if grads is None:
            raise RuntimeError("The distillation loss gives its gradient once: call backward without retain_graph.")
        return (*(None if g is None else g.mul_(given[0]) for g in grads), None)


def _chunk(hidden: Tensor, job: Job, part: slice) -> tuple[Tensor, Tensor]:
    """Divergences (R,) of some rows, and the gradient of their weighted sum in what `project` gave (R, V)."""
    projected, taught = job.logits(hidden, part)
    with torch.enable_grad():
        leaf = projected.requires_grad_()
        logits = job.student.logits(leaf, job.temperature)
        found = job.divergence(logits, taught, part)
        (grad,) = torch.autograd.grad(found, leaf, grad_outputs=job.weights[part].to(found.dtype))
    if job.tokens is not None and job.push is not None:
        job.push[part] = -grad.gather(1, job.tokens[part, None])[:, 0]
    if job.observe is not None:
        job.observe(logits.detach(), taught, part)
    return found.detach(), grad


def _add(grads: list[Tensor | None], grad: Tensor, hidden: Tensor, part: slice, head: Head) -> None:
    """Put a chunk's share into the gradients of hidden states, weight and bias."""
    states, weight, bias = grads
    if states is not None:
        states[part] = (grad.to(head.weight.dtype) @ head.weight.detach()).float()
    if weight is not None:
        weight[: grad.size(1)].addmm_(grad.t(), hidden[part].float())
    if bias is not None:
        bias[: grad.size(1)] += grad.sum(0)

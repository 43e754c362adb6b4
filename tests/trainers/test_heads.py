"""The loss over kept rows: its value and gradient are those of the loss written down densely, in any chunks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlkit import divergences
from rlkit.trainers import heads

R, V, H = 7, 13, 5


def a_job(beta: float, bias: bool, **head: Any) -> tuple[torch.Tensor, heads.Job]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    student = heads.Head(draw(V, H), draw(V) if bias else None, **head)
    job = heads.Job(
        student,
        heads.Head(draw(V, H + 2), None),
        draw(R, H + 2),
        torch.rand(R, generator=generator),
        0.7,
        lambda s, t, _: divergences.jsd(s, t, beta),
    )
    return draw(R, H), job


@pytest.mark.parametrize("rows", [1, 3, 100], ids=lambda n: f"chunks of {n}")
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0], ids=str)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_value_and_gradient_are_the_dense_ones(
    rows: int, beta: float, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "ELEMENTS", {"cpu": rows * V, "other": 1})
    hidden, job = a_job(beta, bias, scale=1.5, softcap=3.0)
    given = [hidden, job.student.weight, *([job.student.bias] if bias else [])]
    leaves = [x.clone().requires_grad_() for x in given]
    z = leaves[0] @ leaves[1].t() + (leaves[2] if bias else 0)
    z = 3.0 * torch.tanh(z * 1.5 / 3.0) / 0.7
    taught = job.teacher_hidden @ job.teacher.weight.t() / 0.7
    dense = (job.weights * divergences.jsd(z, taught, beta)).sum()
    expected = torch.autograd.grad(2 * dense, leaves)

    ours = [x.clone().requires_grad_() for x in given]
    loss, values = heads.KeptLoss.apply(ours[0], ours[1], ours[2] if bias else None, job)
    assert loss.item() == pytest.approx(dense.item(), rel=1e-5)
    assert torch.allclose(values, divergences.jsd(z, taught, beta).detach(), atol=1e-5)
    assert not values.requires_grad
    for found, wanted in zip(torch.autograd.grad(2 * loss, ours), expected, strict=True):
        assert torch.allclose(found, wanted, atol=1e-5)


def test_no_row_gives_0_and_a_gradient_of_0() -> None:
    hidden, job = a_job(1.0, False)
    job.teacher_hidden, job.weights = job.teacher_hidden[:0], job.weights[:0]
    leaf, weight = hidden[:0].clone().requires_grad_(), job.student.weight.clone().requires_grad_()
    loss, _ = heads.KeptLoss.apply(leaf, weight, None, job)
    loss.backward()
    assert loss.item() == 0
    assert weight.grad is not None and not weight.grad.any()


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, job = a_job(1.0, False)
    leaf = hidden.requires_grad_()
    loss, _ = heads.KeptLoss.apply(leaf, job.student.weight, None, job)
    loss.backward()
    assert job.student.weight.grad is None and leaf.grad is not None and leaf.grad.any()


def test_the_backward_pass_is_given_once() -> None:
    hidden, job = a_job(1.0, False)
    loss, _ = heads.KeptLoss.apply(hidden.requires_grad_(), job.student.weight, None, job)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        loss.backward()


CONFIGS = {
    "Gemma2Config": {"final_logit_softcapping": 5.0, "head_dim": 8},
    "CohereConfig": {"logit_scale": 0.3},
    "GraniteConfig": {"logits_scaling": 4.0},
    "LlamaConfig": {},
}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_logits_are_the_models_own(name: str) -> None:
    import transformers

    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2, "vocab_size": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**shape, **CONFIGS[name]})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
        ids = torch.arange(3, 15)[None]
        hidden = model.base_model(ids).last_hidden_state[0]
        head = heads.head_of(model, 20, hidden.dtype)
        found = head.logits(head.project(hidden), 1.0)
        assert torch.allclose(found, model(ids).logits[0], atol=1e-5)
        cut = heads.head_of(model, 11, hidden.dtype)
        assert torch.allclose(cut.logits(cut.project(hidden), 1.0), found[:, :11], atol=1e-6)

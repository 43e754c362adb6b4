"""Self-distillation: the teacher's prompts, the clip by hand, and a toy whose teacher knows by construction."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import tensor

from rlkit import divergences
from rlkit.methods import self_distill
from tests import tiny
from tests.tiny import Build, history


def test_templates_take_prompt_solution_and_gold_and_no_other_brace() -> None:
    row = {"prompt": "f({x}) {gold}?", "gold": "7", "steps": "3+4=7"}
    assert self_distill.teacher_prompt(row, "{gold}|{solution}|{prompt}|{x}") == "7|3+4=7#7|f({x}) {gold}?|{x}"
    chat = {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], "solution": "so"}
    assert self_distill.teacher_prompt(chat, "{prompt} {solution}") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q so"},
    ]
    assert chat["prompt"][1]["content"] == "q"
    assert "{" not in self_distill.teacher_prompt(row | {"prompt": "q"}, self_distill.WITH_SOLUTION)
    with pytest.raises(ValueError, match=r"asks for \{gold\}"):
        self_distill.teacher_prompt({"prompt": "q"}, "{gold}")


def test_the_clip_is_per_vocabulary_entry() -> None:
    student, teacher = tensor([[0.5, 0.1, 0.4]]).log(), tensor([[0.3, 0.6, 0.1]]).log()
    terms = [0.3 * math.log(0.3 / 0.5), 0.6 * math.log(0.6 / 0.1), 0.1 * math.log(0.1 / 0.4)]
    assert self_distill.clipped_forward_kl(student, teacher).item() == pytest.approx(sum(terms), abs=1e-6)
    assert sum(terms) == pytest.approx(divergences.forward_kl(student, teacher).item(), abs=1e-6)
    found = self_distill.clipped_forward_kl(student, teacher, clip=0.2).item()
    assert found == pytest.approx(terms[0] + 0.2 + terms[2], abs=1e-6)


def questions(size: int = 256) -> Any:
    """`a+b?` with one right digit, which is easy to learn once someone says it: (a + 3) mod 10."""
    rows = [{"prompt": f"{i // 10 % 10}+{i % 10}?", "gold": str((i // 10 + 3) % 10)} for i in range(size)]
    return Dataset.from_list(rows)


def a_base_that_reads_hints() -> Any:
    """Trained to copy the digit of `g#a+b?`, and to answer `a+b?` with any digit."""
    torch.manual_seed(0)
    model, tokenizer = tiny.tiny_model(hidden_size=32, num_attention_heads=2), tiny.tiny_tokenizer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)

    def encode(texts: list[str]) -> torch.Tensor:
        return torch.tensor([[*tokenizer(text)["input_ids"], 2] for text in texts])

    for step in range(300):
        a, b, g = torch.randint(10, (3, 64), generator=generator).tolist()
        hint = [f"{z}#" if step % 2 else "" for z in g]
        ids = encode([f"{h}{x}+{y}?{z}" for h, x, y, z in zip(hint, a, b, g, strict=True)])
        logits = model(ids).logits[:, -3:-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -2:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@torch.no_grad()
def right(model: Any, rows: Any, hint: bool) -> float:
    """Mean probability of the right digit."""
    tokenizer = tiny.tiny_tokenizer()
    found = []
    for row in rows:
        ids = tokenizer(f"{row['gold']}#{row['prompt']}" if hint else row["prompt"], return_tensors="pt")["input_ids"]
        answer = tokenizer.convert_tokens_to_ids(row["gold"])
        found.append(model(ids).logits[0, -1].softmax(-1)[answer].item())
    return sum(found) / len(found)


@pytest.mark.slow
@pytest.mark.parametrize("shown", [True, False], ids=["solution", "control"])
def test_what_the_hinted_model_knows_is_learnt_without_the_hint(distil: Build, shown: bool) -> None:
    """Hinted near 1, unhinted near .1: OPSD closes more than half of the gap, an empty hint none of it."""
    rows, model = questions(100), a_base_that_reads_hints()
    before, hinted = right(model, rows, False), right(model, rows, True)
    assert hinted > 0.9
    assert before < 0.15
    method = self_distill.OPSD.with_options(template="{gold}#{prompt}" if shown else "{prompt}")
    trainer = distil(
        method=method,
        model=model,
        teacher=None,
        data=rows,
        max_steps=150,
        per_device_train_batch_size=50,
        learning_rate=3e-3,
        max_completion_length=2,
    )
    trainer.train()
    after = right(trainer.model, rows, False)
    if shown:
        assert after - before > 0.5 * (hinted - before)
    else:
        assert abs(after - before) < 0.05


def test_under_its_own_prompt_there_is_nothing_to_learn(distil: Build) -> None:
    for method in (self_distill.OPSD, self_distill.OPSDC):
        trainer = distil(method=method.with_options(template="{prompt}"), teacher=None, max_steps=1)
        trainer.train()
        ((loss, norm),) = history(trainer, "loss", "grad_norm")
        assert abs(loss) < 1e-6
        assert norm < 1e-4


def test_the_teacher_of_opsdc_is_renewed_every_m_steps(distil: Build) -> None:
    method = self_distill.OPSDC.with_options(template="#{prompt}", refresh_every=2)
    trainer = distil(method=method, teacher=None, max_steps=3)
    start = [p.clone() for p in trainer.teacher_model.parameters()]
    trainer.train()
    assert trainer.teacher_refreshed
    now = [p.clone() for p in trainer.teacher_model.parameters()]
    student = list(trainer.model.parameters())
    assert not all(torch.equal(a, b) for a, b in zip(start, now, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(student, now, strict=True))  # a step behind

"""Teachers: vocabularies that fit or are refused, the student as its own teacher, prompts of the teacher's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rlkit
from rlkit.method import Context, Method
from rlkit.trainers import teachers
from tests import tiny
from tests.tiny import Build, history


def ones(ctx: Context) -> torch.Tensor:
    assert ctx.entropies is not None
    return torch.ones_like(ctx.entropies)


def prompts(dataset: Any, before: str) -> Any:
    return dataset.add_column("teacher_prompt", [before + row["prompt"] for row in dataset])


def watched(**fields: Any) -> tuple[Method, list[Context]]:
    """A method that remembers what it sees."""
    seen: list[Context] = []

    def look(ctx: Context) -> torch.Tensor:
        seen.append(ctx)
        return ones(ctx)

    return Method("mine", trainer="distill", token_weight=look, **fields), seen


@torch.no_grad()
def logps_under(model: Any, ctx: Context, prefix: str) -> torch.Tensor:
    """(B, T) log-probs of a step's completions under the student's ("") or the teacher's ("teacher_") prompts."""
    batch = ctx.extras
    ids = torch.cat([batch[f"{prefix}prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch[f"{prefix}prompt_mask"], batch["completion_mask"]], 1)
    log_p = model(ids, attention_mask=mask).logits[:, -batch["completion_ids"].size(1) - 1 : -1].log_softmax(-1)
    return log_p.gather(2, batch["completion_ids"][..., None])[..., 0]


def bigger(size: int) -> Any:
    """The other model with a padded head: the entries that mean something are equal."""
    padded = tiny.tiny_model(seed=7, vocab_size=size)
    small = tiny.tiny_model(seed=7)
    weights = padded.state_dict()
    for name, value in small.state_dict().items():
        weights[name][tuple(slice(n) for n in value.shape)] = value
    padded.load_state_dict(weights)
    return padded


def test_a_padded_teacher_is_sliced(distil: Build) -> None:
    plain = distil(method="opd")
    plain.train()
    sliced = distil(method="opd", teacher=bigger(32))
    assert sliced.vocabulary == 20
    sliced.train()
    for ours, theirs in zip(history(sliced, "loss", "grad_norm"), history(plain, "loss", "grad_norm"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_a_padded_student_never_draws_padding(distil: Build) -> None:
    method, seen = watched()
    trainer = distil(method=method, model=bigger(64), teacher=tiny.tiny_model())
    trainer.train()
    assert trainer.vocabulary == 20
    assert all(int(ctx.extras["completion_ids"].max()) < 20 for ctx in seen)
    assert all(line[0] > 0 for line in history(trainer, "loss"))


def test_sizes_that_differ_without_a_tokenizer_are_refused(distil: Build) -> None:
    with pytest.raises(ValueError, match=r"20 entries and the teacher's 32.*teacher_tokenizer="):
        distil(method="opd", teacher=bigger(32), named={"teacher_tokenizer": None})


def test_another_tokenizer_of_the_same_size_is_refused(distil: Build) -> None:
    other = tiny.tiny_tokenizer()
    other.get_vocab = lambda: {**tiny.tiny_tokenizer().get_vocab(), "1": 5, "2": 4}
    with pytest.raises(ValueError, match=r"different tokenizers: 2 tokens .*'1', '2'.*GOLD"):
        distil(method="opd", named={"teacher_tokenizer": other})


def test_a_missing_an_unwanted_and_the_same_teacher_are_refused(distil: Build) -> None:
    with pytest.raises(ValueError, match="needs a teacher: pass teacher_model="):
        distil(method="opd", teacher=None)
    with pytest.raises(ValueError, match="is its own teacher"):
        distil(method=Method("mine", trainer="distill", teacher="self"))
    model = tiny.tiny_model()
    with pytest.raises(ValueError, match="the same object"):
        distil(method="opd", model=model, teacher=model)
    with pytest.raises(ValueError, match="needs a teacher"):
        rlkit.trainer("opd", preset="smoke", task="chain")


def test_the_student_teaches_itself_without_a_second_model(distil: Build) -> None:
    """The teacher's log-probs are the student's own under the other prompt; its gradient is not the teacher's."""
    method, seen = watched(teacher="self")
    trainer = distil(method=method, teacher=None, data=prompts(tiny.tiny_data(), "#="), max_steps=2)
    assert trainer.teacher_model is None
    start = tiny.tiny_model()
    trainer.train()
    assert trainer.model.training
    extras = seen[0].extras
    inside = extras["completion_mask"] > 0
    for prefix, found in (("", seen[0].logps), ("teacher_", extras["teacher_logps"])):
        assert torch.allclose(found[inside], logps_under(start, seen[0], prefix)[inside], atol=1e-5)
    assert extras["teacher_prompt_ids"].size(1) == extras["prompt_ids"].size(1) + 2
    assert seen[0].divergence[inside].min() > 0
    assert (seen[1].logps[:, 0] - seen[0].logps[:, 0]).abs().max() > 0


def test_no_gradient_reaches_the_student_through_its_teacher(distil: Build) -> None:
    """A live teacher and a frozen copy of it give the same first step, tied head and all."""
    norms = []
    for kind in ("self", "initial"):
        method = Method("mine", trainer="distill", teacher=kind)
        trainer = distil(method=method, teacher=None, data=prompts(tiny.tiny_data(), "#="), max_steps=2)
        trainer.train()
        norms.append(history(trainer, "loss", "grad_norm"))
    assert norms[0][0] == pytest.approx(norms[1][0], rel=1e-5)
    assert norms[0][0][1] > 1e-3
    assert norms[0][1] != pytest.approx(norms[1][1], rel=1e-5)  # then the live one has moved


def test_under_an_adapter_the_base_teaches_and_no_copy_is_made(distil: Build) -> None:
    from peft import LoraConfig

    method, seen = watched(teacher="initial")
    adapter = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = distil(
        method=method,
        teacher=None,
        data=prompts(tiny.tiny_data(), "#="),
        named={"peft_config": adapter},
        learning_rate=0.1,
    )
    assert trainer.teacher_model is None
    trainer.train()
    base, last = tiny.tiny_model(), seen[-1]
    own, taught = (logps_under(base, last, prefix) for prefix in ("", "teacher_"))
    inside = last.mask > 0
    assert torch.allclose(last.extras["teacher_logps"][inside], taught[inside], atol=1e-5)
    assert (last.logps - own)[inside].abs().max() > 1e-3  # the student has moved, the base has not
    with pytest.raises(ValueError, match="below the adapter"):
        trainer.refresh_teacher()


def test_a_refreshed_teacher_is_in_the_checkpoint(distil: Build, tmp_path: Path) -> None:
    def run(**config: Any) -> Any:
        method = rlkit.catalog()["opsdc"].with_options(template="#={prompt}", refresh_every=1)
        return distil(method=method, teacher=None, max_steps=4, **config)

    whole = run(save_strategy="steps", save_steps=2)
    whole.train()
    checkpoint = tmp_path / "checkpoint-2"
    assert (checkpoint / teachers.TEACHER_NAME).exists()
    resumed = run()
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert history(resumed, "loss", "grad_norm")[-1] == history(whole, "loss", "grad_norm")[-1]
    frozen = run()
    frozen.method = frozen.method.with_options(refresh_every=0)
    frozen.train()
    assert history(frozen, "loss")[-1] != history(whole, "loss")[-1]


def test_a_teacher_prompt_that_does_not_fit_is_refused(distil: Build) -> None:
    method = Method("mine", trainer="distill", teacher="self")
    trainer = distil(method=method, teacher=None, data=prompts(tiny.tiny_data(), "1" * 60))
    with pytest.raises(ValueError, match=r"A teacher_prompt of .* does not fit"):
        trainer.train()


def test_a_teacher_may_be_wider_than_the_student(distil: Build) -> None:
    trainer = distil(method="tip", teacher=tiny.tiny_model(seed=1, hidden_size=24, num_attention_heads=3))
    trainer.train()
    assert all(loss > 0 and norm > 0 for loss, norm in history(trainer, "loss", "grad_norm"))


def test_a_method_without_a_teacher_loads_none(distil: Build) -> None:
    trainer = distil(method="opd_no_teacher", teacher=None)
    trainer.train()
    assert trainer.teacher_model is None
    assert "divergence" not in trainer.state.log_history[0]
    assert any(norm > 0 for (norm,) in history(trainer, "grad_norm"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"divergence": lambda s, t, ctx: s}, r"shape \(R,\)"),
        ({"divergence": lambda s, t, ctx: t.sum(-1)}, "does not depend on the student"),
        ({"divergence": lambda s, t, ctx: (s - s).sum(-1) / 0}, "NaN or infinite"),
        ({"token_weight": lambda ctx: ctx.mask[:, 0]}, r"shape \(B, T\)"),
    ],
    ids=["shape", "constant", "nan", "weight"],
)
def test_what_hooks_give_is_looked_at(distil: Build, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distil(method=Method("mine", trainer="distill", **fields)).train()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"advantage": ones}, "distillation has no such seam"),
        ({"needs": frozenset({"logps"})}, "needs can hold 'forward'"),
        ({"teacher": "none"}, "needs a 'divergence'"),
        ({"teacher": "nobody"}, "teacher is one of"),
    ],
    ids=["seam", "needs", "none", "unknown"],
)
def test_methods_that_mean_nothing_here_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Method("mine", trainer="distill", **fields)


def test_examining_leaves_no_trace_and_gives_what_a_step_sees(distil: Build) -> None:
    trainer = distil(method="tip", max_steps=1)
    state, metrics = torch.get_rng_state(), {k: dict(v) for k, v in trainer._metrics.items()}
    rows = [trainer.train_dataset[i] for i in range(6)]
    seen, again = trainer.examine(rows, seed=1), trainer.examine(rows, seed=1)
    assert torch.equal(state, torch.get_rng_state())
    assert {k: dict(v) for k, v in trainer._metrics.items()} == metrics and trainer.generated_tokens == 0
    assert torch.equal(seen["completion_ids"], again["completion_ids"])
    assert [len(words) for words in seen["tokens"]] == seen["mask"].sum(1).tolist()
    assert torch.equal(seen["divergence"] != 0, seen["mask"] > 0)
    assert all(seen[name].shape == seen["mask"].shape for name in ("forward", "teacher_logps", "entropies"))
    assert trainer.examine(rows, seed=2)["texts"] != seen["texts"]


def test_the_gradient_norm_of_all_tokens_is_that_of_the_step(distil: Build) -> None:
    method, seen = watched()
    trainer = distil(method=method, max_steps=1, learning_rate=0.0)
    trainer.train()
    batch = {name: value for name, value in seen[0].extras.items() if isinstance(value, torch.Tensor)}
    given = {**batch, "mask": seen[0].mask}
    (norm,) = history(trainer, "grad_norm")[0]
    assert trainer.gradient_norm(given, torch.ones_like(seen[0].mask)) == pytest.approx(norm, rel=1e-4)
    assert trainer.gradient_norm(given, seen[0].mask, beta=0.0) != pytest.approx(norm, rel=1e-3)
    with pytest.raises(ValueError, match="No token"):
        trainer.gradient_norm(given, torch.zeros_like(seen[0].mask))

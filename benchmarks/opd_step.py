"""Time per distillation step: `DistillTrainer` against TRL's `DistillationTrainer`, same settings, same rollouts.

Two processes take steps in turn, as in `benchmarks/step.py`. The models have random weights and a vocabulary of 32,768:
speed does not depend on what they say. The learning rate is 0, so that both draw the same rollouts in every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks import step
from benchmarks.readme import Report, about
from benchmarks.turns import shown

VOCABULARY, WIDTH, LAYERS, ROLLOUTS, TOKENS = 32_768, 256, 2, 16, 24


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    target: float | None = None
    """Largest ratio that we want."""


CASES = (
    Case("`opd`: all tokens, nothing selected", "opd", target=1.05),
    Case("`tip`, 100 % kept", "tip", {"retention": 1.0}, target=1.05),
    Case("`tip`, 50 % kept", "tip", {"retention": 0.5}),
    Case("`tip`, 10 % kept", "tip", {"retention": 0.1}, target=0.6),
    Case("`tip_q3`, 10 % kept", "tip_q3", {"retention": 0.1}, target=0.6),
)


def model(seed: int, tokenizer: Any) -> Any:
    """A Llama with a real vocabulary and random weights."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    ends = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    shape = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": LAYERS}
    shape |= {"num_attention_heads": 4, "vocab_size": VOCABULARY, "max_position_embeddings": 256}
    made = LlamaForCausalLM(LlamaConfig(**shape, **ends, tie_word_embeddings=False))
    made.generation_config = GenerationConfig(**ends)
    return made


def build(case: Case, stock: bool, steps: int) -> Any:
    """A trainer on one torch thread."""
    import torch
    from trl import DistillationConfig, DistillationTrainer

    from rlkit.method import get_method
    from rlkit.models import load_model
    from rlkit.tasks.base import get_task
    from rlkit.trainers.distill import DistillTrainer

    torch.set_num_threads(1)
    _, tokenizer = load_model("chain")
    plain = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none", "beta": 1.0}
    plain |= {"logging_steps": 1, "save_strategy": "no", "disable_tqdm": True, "disable_dropout": True}
    args = DistillationConfig(
        "build/benchmark",
        max_steps=steps,
        learning_rate=0.0,
        per_device_train_batch_size=ROLLOUTS,
        max_completion_length=TOKENS,
        **plain,
    )
    data = get_task("chain").dataset("train", 512)
    given = {"model": model(0, tokenizer), "teacher_model": model(1, tokenizer), "args": args}
    given |= {"train_dataset": data, "processing_class": tokenizer}
    if stock:
        return DistillationTrainer(**given)
    method = get_method(case.method).with_options(**case.options)
    return DistillTrainer(**given, method=method, teacher_tokenizer=tokenizer)


def report(quick: bool) -> Report:
    """Measure every case."""
    steps = 2 if quick else 6
    found = [step.measure(case, steps, build) for case in CASES]
    lines = [[row["case"].name, *step.cells(row)] for row in found]
    how = f"{ROLLOUTS} rollouts of {TOKENS} tokens, vocabulary {VOCABULARY:,}, student and teacher of {LAYERS} layers "
    how += f"and width {WIDTH}; {steps} steps after {step.WARM_UP} to warm up; {about()}. "
    how += f"Loss and grad_norm of `opd` and stock differ by at most {found[0]['apart']:.0e} over all steps."
    summary = [(f"a distillation step, to stock TRL's: {row['case'].name}", shown(row["cpu"], 2)) for row in found[::3]]
    return Report(f"{step.markdown(['method', *step.COLUMNS], lines)}\n\n{how}", summary)

"""Does a training step of preset gpu fit a consumer card? Memory and time beside stock TRL and beside the estimate.

Models have random weights in the real shapes: nothing is downloaded. Each step runs in a process of its own, capped at
8, 12, 16 or 24 GB; the smallest cap under which it ends is reported. It runs only where it is named:

    python -m benchmarks gpu_fit                 # on an NVIDIA GPU, some minutes; without one: "not measured yet"
    python -m benchmarks gpu_fit --quick --dry   # without a GPU, a toy shape: does the script itself run
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.readme import Report, about
from rlkit.doctor.memory import GB, Load, estimate
from rlkit.doctor.shapes import SHAPES, Shape

CAPS = (8, 12, 16, 24)
STEPS = 2
"""The first warms up; the last is reported."""
PROMPT = 256
TOY = Shape(64, 2, 4, 2, 16, 128, 512, True, qk_norm=True)


@dataclass(frozen=True)
class Case:
    """The step of one notebook."""

    notebook: str
    method: str
    model: str
    teacher: str = ""
    settings: tuple[tuple[str, Any], ...] = ()


CASES = (
    Case("01 token_importance_opd", "tip", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B"),
    Case("02 median_baseline", "mc_grpo", "Qwen/Qwen2.5-1.5B-Instruct"),
    Case("02 at 8 GB", "mc_grpo", "Qwen/Qwen2.5-0.5B-Instruct"),
    Case("03 replay_buffer", "replay_uniform", "Qwen/Qwen3-0.6B", settings=(("prompts_per_step", 2), ("repeat", 4))),
    Case("04 one_shot_rlvr", "one_shot", "Qwen/Qwen2.5-Math-1.5B"),
)


def shape_in(name: str, toy: bool) -> Shape:
    """The real shape, or the toy's."""
    return TOY if toy else SHAPES[name]


def make(shape: Shape, folder: Path) -> None:
    """Write a model with random weights, and a tokenizer of a few letters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from rlkit.models import load_model

    config = AutoConfig.for_model(
        "qwen3" if shape.qk_norm else "qwen2",
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied,
        layer_types=["full_attention"] * shape.layers,
        max_position_embeddings=4096,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    model.save_pretrained(folder)
    load_model("chain")[1].save_pretrained(folder)


def reward(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
    """Some number that differs from rollout to rollout, so that every row has an advantage."""
    return [int(hashlib.sha256(str(list(ids)).encode()).hexdigest()[:4], 16) / 2**16 for ids in completion_ids]


def rows(prompt: int) -> Any:
    """Prompts of so many characters."""
    from datasets import Dataset

    texts = [("".join(str((i * 7 + k) % 10) for k in range(prompt - 2)) + "?") for i in range(128)]
    return Dataset.from_dict({"prompt": texts, "gold": ["0"] * len(texts)})


def settings_of(case: Case, toy: bool) -> dict[str, Any]:
    """What differs from preset gpu."""
    own: dict[str, Any] = {"max_steps": STEPS, "eval_size": 0, "train_size": 128, **dict(case.settings)}
    if toy:
        small = {"use_cpu": True, "bf16": False, "max_completion_length": 8, "num_generations": 4}
        own |= small | {"prompts_per_step": 2, "gradient_accumulation_steps": 1}
        if case.teacher:
            own.pop("num_generations")
    return own


def build(case: Case, stock: bool, toy: bool, folder: Path) -> Any:
    """Our trainer, or TRL's at the same settings."""
    import rlkit

    given = {"model": str(folder / "model"), "task": rows(20 if toy else PROMPT)}
    given |= {"teacher": str(folder / "teacher")} if case.teacher else {"reward": reward}
    ours = rlkit.trainer(case.method, preset="gpu", **given, **settings_of(case, toy))
    if not stock:
        return ours
    from trl import DistillationTrainer, GRPOTrainer

    from rlkit.models import load_model
    from rlkit.models.adapters import lora_config

    args, data, settings = ours.args, ours.train_dataset, ours.settings
    del ours
    policy, tokenizer = load_model(given["model"], quantization="nf4")
    same = {"args": args, "train_dataset": data, "processing_class": tokenizer, "peft_config": lora_config(settings)}
    if case.teacher:
        taught = load_model(given["teacher"], quantization="nf4")[0]
        return DistillationTrainer(policy, teacher_model=taught, **same)
    return GRPOTrainer(policy, reward, **same)


def measure(case: Case, stock: bool, cap: int, toy: bool, folder: Path, answer: Any) -> None:
    """Train a few steps under a cap; sends peak bytes and seconds of generation and of the rest."""
    import torch

    gpu = torch.cuda.is_available()
    if gpu:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap * GB / total))
    try:
        trainer = build(case, stock, toy, folder)
        found: dict[str, float] = {"generation": 0.0, "update": 0.0, "generating": 0.0}
        drawing = trainer._generate_and_score_completions

        def timed(*args: Any, **named: Any) -> Any:
            if gpu:
                found["update"] = max(found["update"], torch.cuda.max_memory_reserved())
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            started = time.perf_counter()
            out = drawing(*args, **named)
            if gpu:
                torch.cuda.synchronize()
                found["generation"] = max(found["generation"], torch.cuda.max_memory_reserved())
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            found["generating"] = time.perf_counter() - started
            return out

        trainer._generate_and_score_completions = timed
        trainer.train()
        if gpu:
            found["update"] = max(found["update"], torch.cuda.max_memory_reserved())
        found["step"] = [line["step_time"] for line in trainer.state.log_history if "step_time" in line][-1]
        answer.send({**found, "load": dataclasses.asdict(Load.of(trainer.settings, PROMPT)) if not stock else None})
    except Exception as error:
        memory = "memory" in str(error).lower()
        answer.send({"out_of_memory": memory, "error": f"{type(error).__name__}: {str(error).splitlines()[0]}"})


def smallest(case: Case, stock: bool, toy: bool, folder: Path) -> dict[str, Any]:
    """The first cap under which the step ends, with what was measured there."""
    context = multiprocessing.get_context("spawn")
    for cap in CAPS[:1] if toy else CAPS:
        here, there = context.Pipe()
        worker = context.Process(target=measure, args=(case, stock, cap, toy, folder, there))
        worker.start()
        found = here.recv() if here.poll(600) else {"error": "no answer in 10 minutes"}
        worker.join()
        if "error" not in found:
            return {**found, "cap": cap}
        if not found.get("out_of_memory"):
            return found
    return {"error": f"more than {CAPS[-1]} GB"}


def expected(case: Case) -> tuple[Load, float, float]:
    """Load, peak bytes and seconds a step by estimate, at the settings of preset gpu."""
    from rlkit.method import get_method
    from rlkit.presets import get_preset
    from rlkit.settings import resolve

    load = Load.of(resolve(get_method(case.method), get_preset("gpu"), {}, dict(case.settings)), PROMPT)
    needs = estimate(SHAPES[case.model], load, SHAPES[case.teacher] if case.teacher else None)
    return load, needs.peak, sum(needs.seconds.values())


def line(case: Case, ours: dict[str, Any] | None, stock: dict[str, Any] | None) -> str:
    """A row of the table."""
    load, peak, seconds = expected(case)
    cells = [case.notebook, case.model.split("/")[1] + (f" from {case.teacher.split('/')[1]}" if case.teacher else "")]
    cells += [
        f"{load.rows} x {load.completion}, {load.micro_batch} at a time",
        f"{peak / GB:.1f} GB",
        f"{seconds:.0f} s",
    ]
    for found in (ours, stock):
        if found is None:
            cells.append("not measured yet")
        elif "error" in found:
            cells.append(found["error"])
        else:
            memory = f"{found['generation'] / GB:.1f} / {found['update'] / GB:.1f} GB"
            split = f"{found['step']:.1f} s, {found['generating']:.1f} of them generating"
            cells.append(f"fits {found['cap']} GB; {memory}; {split}")
    return f"| {' | '.join(cells)} |"


def lines(toy: bool) -> Iterator[str]:
    """The rows of the table: measured on a GPU, in a toy's shape on a CPU, else estimated only."""
    import torch

    for case in CASES:
        if not (toy or torch.cuda.is_available()):
            yield line(case, None, None)
            continue
        with tempfile.TemporaryDirectory() as folder:
            make(shape_in(case.model, toy), Path(folder) / "model")
            if case.teacher:
                make(shape_in(case.teacher, toy), Path(folder) / "teacher")
            ours, stock = (smallest(case, which, toy, Path(folder)) for which in (False, True))
        print(json.dumps({"notebook": case.notebook, "rlkit": ours, "stock": stock}), flush=True)
        yield line(case, ours, stock)


def report(quick: bool) -> Report:
    """Measure every case on a GPU. Without one: the estimates, or, quickly, a toy shape, which tries the script."""
    import torch

    toy = quick and not torch.cuda.is_available()
    head = ["| notebook | model | completions x tokens | estimate | estimate, RTX 4090 | rlkit | stock TRL |"]
    head.append("|---" * 7 + "|")
    where = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU: nothing was measured"
    where = "a toy shape on a CPU, to try the script: not to be kept" if toy else where
    how = f"Peaks are of generation / update, as reserved by torch; {where}; {about()}."
    return Report("\n".join([*head, *lines(toy), "", how]))

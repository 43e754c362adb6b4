"""The one dial: a preset fixes model, task, budget, number of seeds and which arms run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlkit.method import near


@dataclass(frozen=True)
class Preset:
    """Where a run starts from before task, method and call have their say."""

    name: str
    summary: str
    model: str
    """A tiny base by name, a hub id or a folder."""
    task: str
    seeds: int
    """Seeds per arm."""
    tiers: tuple[str, ...]
    """Which arms of a notebook run: core, or core and full."""
    threads: int | None = None
    """torch threads per process; None leaves torch's own choice."""
    workers: int | None = None
    """Worker processes of a grid; None for one per core, 0 for none: where starting them takes longer than the runs."""
    real: bool = False
    """Whether it trains a real pretrained model: a notebook's tiny part is then read from what is recorded."""
    gpu: bool = False
    """Whether it needs an NVIDIA GPU."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """TRL options and rlkit's own (`prompts_per_step`, `train_size`, `eval_every`, `eval_size`)."""


TINY = Preset(
    name="tiny",
    summary="a tiny base, core arms, 3 seeds: a laptop CPU in minutes",
    model="chain",
    task="chain",
    seeds=3,
    tiers=("core",),
    threads=1,  # at this size a second thread only waits: on two busy cores it made a step 8 times slower
    settings={
        "prompts_per_step": 8,
        "num_generations": 8,
        "max_steps": 100,
        "train_size": 4096,
        "eval_every": 20,
        "eval_size": 256,
        "learning_rate": 3e-5,
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "disable_dropout": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    },
)

SMALL = dataclasses.replace(
    TINY,
    name="small",
    summary="SmolLM2-135M-Instruct with LoRA on one-digit sums: a pretrained model on a CPU; a demonstration",
    model="smollm2",
    task="sums",
    seeds=1,
    real=True,
    settings={
        **TINY.settings,
        "prompts_per_step": 4,
        "num_generations": 4,
        "max_steps": 60,
        "train_size": 64,
        "eval_every": 6,
        "eval_size": 40,
        "learning_rate": 3e-4,
        "temperature": 0.8,
        "lora_r": 8,
        "lora_target_modules": "q_proj+v_proj",
    },
)

GPU = Preset(
    name="gpu",
    summary="the papers' model families in 4 bits with LoRA on GSM8K or MATH: one GPU of 8 to 24 GB, hours",
    model="Qwen/Qwen2.5-1.5B-Instruct",
    task="gsm8k",
    seeds=3,
    tiers=("core",),
    workers=0,  # one process holds the GPU
    real=True,
    gpu=True,
    settings={
        "prompts_per_step": 8,
        "num_generations": 8,
        "gradient_accumulation_steps": 8,  # 8 completions a forward and backward pass
        "max_steps": 100,
        "train_size": 4096,
        "eval_every": 25,
        "eval_size": 128,
        "max_completion_length": 512,
        "learning_rate": 2e-5,
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "disable_dropout": True,
        "bf16": True,
        "gradient_checkpointing": True,
        "optim": "adamw_torch_fused",
        "quantization": "nf4",
        "lora_r": 16,
        "lora_target_modules": "all-linear",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    },
)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        dataclasses.replace(
            TINY,
            name="smoke",
            summary="a few steps of the core arms, 1 seed: does every cell run",
            seeds=1,
            workers=0,
            settings={
                **TINY.settings,
                "prompts_per_step": 4,
                "max_steps": 2,
                "train_size": 256,
                "eval_every": 2,
                "eval_size": 16,
            },
        ),
        TINY,
        dataclasses.replace(
            TINY,
            name="full",
            summary="the same, every arm, 5 seeds: the committed evidence",
            seeds=5,
            tiers=("core", "full"),
        ),
        SMALL,
        GPU,
    )
}


def get_preset(name: str) -> Preset:
    """A preset by name; an unknown name is an error that lists the known ones."""
    if name not in PRESETS:
        raise ValueError(f"There is no preset {name!r}. {near(name, list(PRESETS))}")
    return PRESETS[name]

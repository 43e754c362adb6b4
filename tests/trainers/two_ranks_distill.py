"""What two processes do when they distil, for `test_two_ranks_distill.py`; each writes a JSON file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["ACCELERATE_USE_CPU"] = "true"

import torch
from trl import DistillationTrainer

from rlkit.method import Context, Method
from rlkit.trainers.distill import DistillTrainer
from tests import tiny

NAMES = ("loss", "grad_norm", "entropy", "num_tokens")
COUNTS = ("loss", "grad_norm", "num_tokens", "kept_share", "generated_tokens", "trained_tokens")


def build(folder: Path, stock: bool = False, method: Any = "opd", **options: Any) -> Any:
    given = {"model": tiny.tiny_model(), "teacher_model": tiny.tiny_model(seed=7), "train_dataset": tiny.tiny_data(32)}
    given |= {"processing_class": tiny.tiny_tokenizer(), "args": tiny.distill_config(folder, **options)}
    own = {} if stock else {"method": method, "teacher_tokenizer": tiny.tiny_tokenizer()}
    return (DistillationTrainer if stock else DistillTrainer)(**given, **own)


def identity(folder: Path) -> Any:
    """Stock against weight one, by micro-batch and pooled, in two micro-batches."""
    out = []
    size = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    one = {"trainer": "distill", "token_weight": lambda ctx: torch.ones_like(ctx.entropies)}
    for how in ({"stock": True}, {}, {"method": Method("one", **one)}, {"method": Method("one", **one, pooled=True)}):
        trainer = build(folder, **how, **size)
        trainer.train()
        out.append(tiny.history(trainer, *NAMES))
    return out


def pooled(folder: Path) -> Any:
    """A median over all ranks: the same rows are seen everywhere, whatever the accumulation."""
    runs, seen = [], []

    def weight(ctx: Context) -> Any:
        assert ctx.entropies is not None and ctx.mask is not None
        seen.append([len(ctx.mask), int(ctx.mask.sum()), float(ctx.entropies.sum())])
        return (ctx.entropies >= ctx.entropies[ctx.mask > 0].median()).float()

    for parts in (1, 2):
        size = {"per_device_train_batch_size": 8 // parts, "gradient_accumulation_steps": parts}
        trainer = build(folder, method=Method("pooled", trainer="distill", token_weight=weight, pooled=True), **size)
        trainer.train()
        runs.append(tiny.history(trainer, *COUNTS))
    return [runs, seen]


if __name__ == "__main__":
    torch.set_num_threads(1)
    target, folder = Path(sys.argv[1]), Path(sys.argv[2])
    results = {part.__name__: part(folder) for part in (identity, pooled)}
    target.with_name(f"{target.name}.{os.environ['RANK']}").write_text(json.dumps(results), encoding="utf-8")
    torch.distributed.destroy_process_group()

"""What two processes do with the seams, for `test_two_ranks_seams.py`; each writes a JSON file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["ACCELERATE_USE_CPU"] = "true"

import torch
from accelerate.utils import gather_object

from rlkit.method import Context, Method
from tests.tiny import history, length_reward
from tests.trainers.by_hand import loss_and_gradient
from tests.trainers.memory import everywhere
from tests.trainers.test_surrogate import ppo, relative
from tests.trainers.two_ranks import build

NAMES = ("loss", "grad_norm", "reward", "num_tokens")
STALE = {"per_device_train_batch_size": 8, "steps_per_generation": 2, "learning_rate": 1e-2, "max_steps": 4}


def _whole(pooled: bool) -> Method:
    """Every seam set to what TRL does."""
    return Method(
        "whole",
        sampler=lambda ctx, dataset, rows: [(row, ctx.group_size) for row in rows],
        rollout=lambda ctx, rows, trainer: trainer.generate_rows(rows),
        advantage=lambda ctx: None,
        batch=lambda trainer, batch: batch,
        token_weight=lambda ctx: torch.ones_like(ctx.logps),
        surrogate=ppo,
        needs=frozenset({"logps"}),
        pooled=pooled,
    )


def identity(folder: Path) -> Any:
    """Stock against all seams at once, by micro-batch and pooled."""
    out = {}
    for loss in ("grpo", "dr_grpo", "dapo", "bnpo"):
        runs = []
        for how in ({"stock": True}, {"method": _whole(False)}, {"method": _whole(True)}):
            trainer = build(folder, loss_type=loss, **STALE, **how)
            trainer.train()
            runs.append(history(trainer, *NAMES))
        out[loss] = runs
    return out


def _taking(trainer: Any, batch: Any) -> Any:
    """Rank 0 keeps 10 of its 16 rows, rank 1 all and the first six again."""
    index = torch.arange(10) if trainer.accelerator.process_index == 0 else torch.arange(22) % 16
    return {k: v[index] if v.ndim else v for k, v in batch.items()}


def ragged(folder: Path) -> Any:
    """A batch with other numbers of rows on each rank, against the same rows one by one."""
    out = {}
    for loss in ("grpo", "dr_grpo", "dapo"):
        record: list[Any] = []

        def advantage(ctx: Context, record: Any = record) -> Any:
            A = ctx.rewards - ctx.rewards.mean(1, keepdim=True)
            record[:] = zip(ctx.columns["prompt"], ctx.completion_ids, A.flatten(), [True] * 32, strict=True)
            return A

        for pooled in (False, True):
            method = Method("r", advantage=advantage, batch=_taking, surrogate=ppo, pooled=pooled)
            options = {"loss_type": loss, "max_steps": 1, "max_grad_norm": 1e9, "reward": length_reward}
            trainer = build(folder, method=method, **options)
            trainer.train()
            rows = [*record[:10], *record[16:], *record[16:22]]
            out[f"{loss} {pooled}"] = [history(trainer, "loss", "grad_norm")[0], loss_and_gradient(rows, loss, 8)]
    return out


def pooled(folder: Path) -> Any:
    """A statistic over all ranks does not depend on accumulation, and each rank sees the same rows."""
    runs, seen = [], []

    def weight(ctx: Context) -> Any:
        seen.append([len(ctx.mask), int(ctx.mask.sum()), ctx.extras["completion_ids"].sum().item()])
        return relative(ctx)

    for parts in (1, 2):
        size = {"per_device_train_batch_size": 16 // parts, "gradient_accumulation_steps": parts}
        trainer = build(folder, method=Method("pooled", token_weight=weight, pooled=True), max_steps=2, **size)
        trainer.train()
        runs.append(history(trainer, *NAMES))
    return [runs, seen]


def memory(folder: Path) -> Any:
    """Memory in every seam, saved and resumed; what must be equal on both ranks, and what need not be."""
    names = (*NAMES, "generated_tokens", "trained_tokens")
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "reward": None}
    runs = []
    for start in (None, str(Path(folder) / "checkpoint-2")):
        trainer = build(folder, method=everywhere(), **options)
        trainer.train(resume_from_checkpoint=start)
        own = trainer.method.state[0]
        rows = [row["completion_ids"].tolist() for row in own.rows]
        runs.append([history(trainer, *names)[-2:], sorted(own.rates.items()), sorted(own.calls.items()), rows])
    return runs


def rewards(folder: Path) -> Any:
    """A method's own reward is called with the rows of both ranks, and its table of extras is cut again."""
    seen: list[Any] = []

    def reward(completions: Sequence[Any], id: Any, log_extra: Any, log_metric: Any, **columns: Any) -> list[float]:
        seen.append([list(id), len(completions), len(columns["prompts"]), len(columns["completion_ids"])])
        log_extra("text", list(completions))
        log_metric("count", len(completions))
        return [float(i) for i in range(len(completions))]

    def advantage(ctx: Context) -> None:
        ctx.log("mine", float(ctx.rewards[0, 0]))
        seen.append([ctx.columns["id"], ctx.rewards.flatten().tolist()])

    trainer = build(folder, method=Method("own", reward=reward, advantage=advantage), reward=None, max_steps=1)
    trainer.train()
    texts = list(trainer._logs["extra"]["text"]) == list(trainer._logs["completion"])
    every = gather_object([trainer.anywhere(trainer.accelerator.process_index == 1), trainer.anywhere(False)])
    return [seen, texts, history(trainer, "count", "mine"), every]


def cut(folder: Path) -> Any:
    """A plan whose groups do not end where a process ends."""
    plan = [8, 12, 12]
    method = Method(
        "cut",
        sampler=lambda ctx, dataset, rows: list(zip(rows, plan, strict=False)),
        rollout=lambda ctx, rows, trainer: trainer.generate_rows(rows),
    )
    try:
        build(folder, method=method, max_steps=1).train()
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    torch.set_num_threads(1)
    target, folder = Path(sys.argv[1]), Path(sys.argv[2])
    results: dict[str, Any] = {part.__name__: part(folder) for part in (identity, ragged, pooled, memory, rewards, cut)}
    results["files"] = sorted(path.name for path in (folder / "checkpoint-2").glob("rlkit*"))
    rank = int(os.environ["RANK"])
    target.with_name(f"{target.name}.{rank}").write_text(json.dumps(results), encoding="utf-8")
    torch.distributed.destroy_process_group()

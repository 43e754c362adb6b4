"""What two processes do, for `test_two_ranks.py`: run by `python -m torch.distributed.run`; each writes a JSON file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from rlkit.method import Context

os.environ["ACCELERATE_USE_CPU"] = "true"

import torch

from rlkit.method import Method
from rlkit.methods.grpo import mean_centered
from rlkit.trainers.rlvr import RLVRTrainer
from tests.tiny import half_reward, history, length_reward, tiny_config, tiny_data, tiny_model, tiny_tokenizer
from tests.trainers.by_hand import loss_and_gradient
from tests.trainers.test_resume import stateful

LOSSES = {"grpo": {}, "dr_grpo": {"scale_rewards": "none"}, "dapo": {}, "bnpo": {}, "cispo": {"epsilon_high": 5.0}}


def build(
    folder: Path,
    *,
    stock: bool = False,
    method: Method = "grpo",
    reward: Any = half_reward,
    data: Any = None,
    **config: Any,
) -> Any:
    from transformers.trainer_callback import PrinterCallback
    from trl import GRPOTrainer

    own = {} if stock else {"method": method}
    trainer = (GRPOTrainer if stock else RLVRTrainer)(
        model=tiny_model(),
        reward_funcs=reward,
        args=tiny_config(folder, **{"per_device_train_batch_size": 16, **config}),
        train_dataset=data or tiny_data(),
        processing_class=tiny_tokenizer(),
        **own,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def uneven(record: Any) -> Any:
    """Keeps 3 rows of rank 0's first group and nearly all of rank 1's."""

    def advantage(ctx: Context) -> Any:
        advantages = mean_centered(ctx.rewards)
        keep = torch.ones_like(ctx.rewards, dtype=torch.bool)
        keep[0, 1:], keep[1:4], keep[4, 0] = False, False, False
        record[:] = zip(ctx.columns["prompt"], ctx.completion_ids, advantages.flatten(), keep.flatten(), strict=True)
        return advantages, keep

    return Method("uneven", advantage=advantage)


def identity(folder: Path) -> Any:
    """Stock against rows left out: pairs of [loss, grad_norm] per step."""
    out = {}
    for loss, options in LOSSES.items():
        for parts in (1, 2):
            size = {"per_device_train_batch_size": 16 // parts, "gradient_accumulation_steps": parts}
            runs = []
            for stock in (True, False):
                trainer = build(folder, stock=stock, loss_type=loss, **options, **size)
                trainer.train()
                runs.append(history(trainer, "loss", "grad_norm"))
            left_out = history(trainer, "rows_left_out")
            out[f"{loss} {parts}"] = [*runs, left_out]
    return out


def kept(folder: Path) -> Any:
    """`keep` with other numbers of rows on each rank, against the same rows one by one."""
    out = {}
    for loss in ("grpo", "dr_grpo", "dapo", "cispo"):
        record = []
        options = {"loss_type": loss, "max_steps": 1, "max_grad_norm": 1e9, "epsilon_high": 5.0}
        trainer = build(folder, method=uneven(record), reward=length_reward, **options)
        trainer.train()
        names = ("loss", "grad_norm", "trained_tokens", "generated_tokens")
        tokens = [sum(len(c) for _, c, _, keep in record if keep or every) for every in (False, True)]
        out[loss] = [history(trainer, *names)[0], [*loss_and_gradient(record, loss, 8), *tokens]]
    return out


def resumed(folder: Path) -> Any:
    """The rest of a run with memory, in the middle of the second epoch, uninterrupted and resumed."""
    names = ("loss", "grad_norm", "reward", "generated_tokens", "trained_tokens")
    options = {"save_strategy": "steps", "save_steps": 3, "max_steps": 5}
    runs = []
    for start in (None, str(Path(folder) / "checkpoint-3")):
        trainer = build(folder, method=stateful(), reward=length_reward, **options)
        trainer.train(resume_from_checkpoint=start)
        runs.append([*history(trainer, *names)[-2:], sorted(trainer.method.state[0].by_id.items())])
    return runs


def collected(folder: Path) -> Any:
    """Rewards that the starting policy collects, as this rank sees them, and the tokens charged."""
    trainer = build(folder, reward=length_reward)
    found = trainer.collect([dict(row) for row in tiny_data(4) for _ in range(3)])
    return [[x["reward"] for x in found], trainer.generated_tokens, sum(len(x["completion_ids"]) for x in found)]


def watched(folder: Path) -> Any:
    """A run that is looked at and one that is not; this rank's loss and rows of the recorded steps."""
    runs, steps = [], {}
    for look in (True, False):
        trainer = build(folder, reward=length_reward, gradient_accumulation_steps=2)
        if look:
            trainer.record_steps = frozenset({0, 2})
            trainer.preview()
        trainer.train()
        runs.append(history(trainer, "loss", "grad_norm", "reward", "generated_tokens"))
        steps = steps or {n: [step.metrics["loss"], len(step.rows)] for n, step in trainer.steps.items()}
    return [*runs, steps]


if __name__ == "__main__":
    torch.set_num_threads(1)
    target, folder = Path(sys.argv[1]), sys.argv[2]
    results = {part.__name__: part(folder) for part in (identity, kept, resumed, collected, watched)}
    results["world"] = int(os.environ["WORLD_SIZE"])
    rank = int(os.environ["RANK"])
    target.with_name(f"{target.name}.{rank}").write_text(json.dumps(results), encoding="utf-8")
    torch.distributed.destroy_process_group()

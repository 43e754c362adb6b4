"""The same scripted rollouts on one process or on two, for `test_two_ranks_scripted.py`; each writes a JSON file.

Scripted means: GRPO's family is given its completions through TRL's `rollout_func`, a function of prompt, place in the
group and step; distillation draws greedily (`generation_kwargs`). Plain SGD, no clipping of the gradient: an update
is the gradient, so a difference in it is not blown up by Adam's division.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["ACCELERATE_USE_CPU"] = "true"

import torch
from accelerate.utils import gather_object

from rlkit.method import get_method
from rlkit.trainers.distill import DistillTrainer
from rlkit.trainers.rlvr import RLVRTrainer
from tests import tiny

ROWS = 40
"""Completions a step, over all processes: 8 groups of 5, or 10 of 4."""
SGD = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0, "max_steps": 3}
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def scripted(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """Completions of 1 to 8 tokens, the end token included, drawn by a hash."""
    size, step = trainer.num_generations, trainer.state.global_step
    drawn = []
    for i, prompt in enumerate(prompts):
        digest = hashlib.sha256(f"{prompt} {i % size} {step}".encode()).digest()
        drawn.append([3 + byte % len(tiny.ALPHABET) for byte in digest[1 : 1 + digest[0] % 8]] + [2])
    return {"prompt_ids": trainer.tokenize(prompts), "completion_ids": drawn, "logprobs": None}


def rlvr(folder: Path, method: str, rollouts: Any = scripted, rows: int = ROWS, **config: Any) -> Any:
    chosen, options, data = get_method(method), config.pop("options", {}), config.pop("data", None)
    sizes = {"per_device_train_batch_size": rows // WORLD, "num_generations": 4, **SGD, **config}
    return RLVRTrainer(
        model=tiny.tiny_model(),
        reward_funcs=tiny.length_reward,
        args=tiny.tiny_config(folder, **sizes),
        train_dataset=data or tiny.tiny_data(24),
        processing_class=tiny.tiny_tokenizer(),
        method=chosen.with_options(**{**chosen.options, **options}),
        rollout_func=rollouts,
    )


def distil(folder: Path, method: str, **config: Any) -> Any:
    greedy = {"suppress_tokens": [0], "do_sample": False}
    sizes = {"per_device_train_batch_size": 16 // WORLD, "generation_kwargs": greedy, **SGD, **config}
    return DistillTrainer(
        model=tiny.tiny_model(),
        teacher_model=tiny.tiny_model(seed=7),
        teacher_tokenizer=tiny.tiny_tokenizer(),
        args=tiny.distill_config(folder, **sizes),
        train_dataset=tiny.tiny_data(32),
        processing_class=tiny.tiny_tokenizer(),
        method=method,
    )


def watched(trainer: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Train; what every step's batch held, over all processes in order, the logs and the weights at the end."""
    make, batches = trainer._generate_and_score_completions, []

    def made(inputs: Any) -> Any:
        out = make(inputs)
        batches.append({name: _of_all(out[name]) for name in names if name in out})
        return out

    trainer._generate_and_score_completions = made
    start = torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])
    trainer.train()
    end = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    logs = tiny.history(trainer, "loss", "reward", "generated_tokens", "trained_tokens", "kept_share")
    return {"batches": batches, "logs": logs, "moved": (end - start).tolist()}


def _of_all(value: torch.Tensor) -> Any:
    """One number that all have, or the rows of all processes without their padding."""
    if value.ndim == 0:
        found = gather_object([float(value)])
        assert len(set(found)) == 1, found
        return found[0]
    return gather_object([[round(x, 6) for x in row] if isinstance(row, list) else row for row in value.tolist()])


def grpo(folder: Path) -> Any:
    return watched(rlvr(folder, "grpo"), ("advantages", "counted", "num_items_in_batch", "counted_per_micro_batch"))


def mc_grpo(folder: Path) -> Any:
    names = ("advantages", "counted", "num_items_in_batch", "counted_per_micro_batch")
    trainer = rlvr(folder, "mc_grpo", num_generations=5, scale_rewards="group")
    return watched(trainer, names)


def opd(folder: Path) -> Any:
    return watched(distil(folder, "opd"), ("completion_mask",))


def tip(folder: Path) -> Any:
    return watched(distil(folder, "tip"), ("completion_mask",))


def replay(folder: Path) -> Any:
    """What a shard holds and draws: rows before and after, denominators, and the log-probs of old rows when drawn."""
    trainer = rlvr(folder, "replay_uniform", max_steps=4)
    method, seen, stored = trainer.method, [], {}
    mix, name = method.batch, lambda row: (tuple(row["prompt_ids"]), tuple(row["completion_ids"]))

    def batch(of: Any, given: Any) -> Any:
        out, step = mix(of, given), of.state.global_step
        fresh, rows = _rows(given), _rows(out)
        new = [row for row in rows if row["age"] == 0]
        old = [row for row in rows if row["age"] > 0]
        ratio = [abs(row["logps"][i] - v) for row in old for i, v in enumerate(stored[name(row), step - row["age"]])]
        seen.append({
            "fresh": len(fresh), "new": len(new), "old": len(old), "off": max(ratio, default=0.0),
            "lost": len({name(r) for r in fresh} - {name(r) for r in new}),
            "tokens": sum(len(row["completion_ids"]) for row in rows),
        })  # fmt: skip
        stored.update({(name(row), step): row["logps"] for row in fresh})
        return out

    object.__setattr__(method, "batch", batch)
    found = watched(trainer, ("num_items_in_batch", "counted_per_micro_batch"))
    return {"own": seen, "batches": found["batches"], "logs": found["logs"]}


def _rows(batch: Any) -> list[dict[str, Any]]:
    out = []
    for i in range(len(batch["counted"])):
        keep = batch["completion_mask"][i].bool()
        row = {"age": int(batch["age"][i]) if "age" in batch else 0}
        row["completion_ids"] = batch["completion_ids"][i][keep].tolist()
        row["prompt_ids"] = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
        row["logps"] = batch["old_per_token_logps"][i][keep].tolist()
        out.append(row)
    return out


def group_replay(folder: Path) -> Any:
    """Methods that draw their own rollouts: their old rows are the same on both, and memory too."""
    out = {}
    for label, method, options in (
        ("exgrpo", "exgrpo", {"start_at": 0.0, "right_at": 0.5}),
        ("repo", "repo", {"at_least": 2}),
        ("lowest_entropy", "repo", {"at_least": 2, "draw": "lowest_entropy"}),
    ):
        trainer = rlvr(folder, method, None, loss_type="grpo", options=options, data=tiny.tiny_data(10))
        trainer.train()
        logs = tiny.history(trainer, "loss", "grad_norm", "replay/share", "replay/stored")
        memory = trainer.method.state[0].buffer
        weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        out[label] = [logs, len(memory), float(weights.double().abs().sum())]
    return out


PARTS = (grpo, mc_grpo, opd, tip, replay, group_replay)

if __name__ == "__main__":
    torch.set_num_threads(1)
    target, place = Path(sys.argv[1]), Path(sys.argv[2])
    results: dict[str, Any] = {part.__name__: part(place) for part in PARTS}
    target.with_name(f"{target.name}.{os.environ['RANK']}").write_text(json.dumps(results), encoding="utf-8")
    torch.distributed.destroy_process_group()

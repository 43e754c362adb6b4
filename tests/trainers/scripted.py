"""The same scripted rollouts on one process or two, for `test_scripted.py`: each process writes what it saw as JSON.

The global batch is the same: as many prompts, and as many rollouts of each, whatever the number of processes.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["ACCELERATE_USE_CPU"] = "true"

import torch

from rlkit.method import get_method
from rlkit.trainers.distill import DistillTrainer
from rlkit.trainers.rlvr import RLVRTrainer
from tests import tiny

STEPS, PROMPTS = 3, 4
PARTS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
METHODS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "mc_grpo": {"num_generations": 5},
    "replay_uniform": {"options": {"buffer": 64, "repeat": 2}},
    "exgrpo": {"options": {"start_at": 0.0, "right_at": 0.2}},
    "repo": {"options": {"at_least": 4, "per_prompt": 6}},
}


def completion(prompt: Sequence[int], rollout: int) -> list[int]:
    """Token ids of one rollout of a prompt: 2 to 6 characters and the end token."""
    drawn = random.Random(f"{list(prompt)}/{rollout}")
    return [*(drawn.randrange(3, 20) for _ in range(drawn.randrange(2, 7))), 2]


def scripted(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """TRL's `rollout_func`: prompts come repeated, a group side by side."""
    ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
    drawn = [completion(prompt, i % trainer.num_generations) for i, prompt in enumerate(ids)]
    return {"prompt_ids": ids, "completion_ids": drawn, "logprobs": [[0.0] * len(c) for c in drawn]}


def rlvr(name: str, folder: Path, world: int) -> Any:
    own = dict(METHODS[name])
    group, options = own.get("num_generations", 4), own.pop("options", {})
    config = {"per_device_train_batch_size": PROMPTS * group // world, "num_generations": group, "max_steps": STEPS}
    drawing = get_method(name).rollout is not None  # it asks the trainer for rollouts itself
    trainer = RLVRTrainer(
        model=tiny.tiny_model(),
        reward_funcs=tiny.length_reward,
        args=tiny.tiny_config(folder, **config, learning_rate=1e-2),
        train_dataset=tiny.tiny_data(),
        processing_class=tiny.tiny_tokenizer(),
        method=get_method(name).with_options(**options),
        apply_config=True,
        **({} if drawing else {"rollout_func": scripted}),
    )
    seen, made = [], trainer._generate_and_score_completions

    def generate(inputs: Any) -> Any:
        out = made(inputs)
        seen.append(rows_of(out))
        return out

    trainer._generate_and_score_completions = generate
    trainer.train()
    return {"steps": seen, **results(trainer)}


def rows_of(out: dict[str, Any]) -> dict[str, Any]:
    """What one generation batch holds: a key for each row, and what is trained of it."""
    size = len(out["completion_ids"])
    ids = [
        [*p[m > 0].tolist(), -1, *c[n > 0].tolist()] for p, m, c, n in zip(*(out[name] for name in PARTS), strict=True)
    ]
    old = out.get("old_per_token_logps")
    return {
        "row": ["/".join(map(str, row)) for row in ids],
        "advantage": out["advantages"].tolist(),
        "counted": out["counted"].tolist(),
        "drawn_at": out["drawn_at"].tolist() if "drawn_at" in out else [0] * size,
        "old": None if old is None else (old * out["completion_mask"]).sum(1).tolist(),
        "items": float(out["num_items_in_batch"]),
        "per_micro_batch": float(out["counted_per_micro_batch"]),
    }


def distil(folder: Path, world: int) -> Any:
    trainer = DistillTrainer(
        model=tiny.tiny_model(),
        teacher_model=tiny.tiny_model(seed=7),
        teacher_tokenizer=tiny.tiny_tokenizer(),
        args=tiny.distill_config(folder, per_device_train_batch_size=8 // world, max_steps=STEPS, learning_rate=1e-2),
        train_dataset=tiny.tiny_data(32),
        processing_class=tiny.tiny_tokenizer(),
        method="tip",
    )
    trainer._generate_single_turn = lambda prompts, *rest, **named: [completion(p, 0) for p in prompts]
    trainer.train()
    return results(trainer)


def results(trainer: Any) -> dict[str, Any]:
    """Losses, and the weights after the last step."""
    logged = tiny.history(trainer, "loss", "grad_norm", "trained_tokens", "generated_tokens")
    return {"logged": logged, "weights": torch.cat([p.detach().flatten() for p in trainer.model.parameters()]).tolist()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    out, folder = Path(sys.argv[1]), Path(sys.argv[2])
    world = int(os.environ.get("WORLD_SIZE", "1"))
    found = {name: rlvr(name, folder / name, world) for name in METHODS} | {"tip": distil(folder / "tip", world)}
    rank = os.environ.get("RANK", "0")
    out.with_suffix(f".{rank}").write_text(json.dumps(found), encoding="utf-8")

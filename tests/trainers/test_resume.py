"""A run that is resumed continues as if it had never stopped; where it could not, the save point is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlkit.method import Context, Method
from rlkit.trainers import checkpoint
from rlkit.trainers.sampler import EpochSampler
from rlkit.trainers.watch import micro_steps
from tests.tiny import Build, history, tiny_data

SEEN = ("loss", "grad_norm", "reward", "num_tokens", "generated_tokens", "trained_tokens", "rows_left_out")


class Ema:
    """A baseline with memory, and random draws of its own."""

    def __init__(self) -> None:
        self.mean, self.by_id, self.generator = torch.zeros(()), {}, torch.Generator().manual_seed(0)

    def advantage(self, ctx: Context) -> Any:
        self.mean = 0.5 * self.mean + 0.5 * ctx.rewards.mean()
        for i, r in zip(ctx.columns["id"], ctx.rewards.flatten().tolist(), strict=True):
            self.by_id[i] = (self.by_id.get(i, (0, 0.0))[0] + 1, r)
        noise = torch.rand(ctx.rewards.shape, generator=self.generator) * 0.1
        return ctx.rewards - self.mean + noise

    def state_dict(self) -> Any:
        return {"mean": self.mean, "by_id": self.by_id, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Any) -> None:
        self.mean, self.by_id = state["mean"], state["by_id"]
        self.generator.set_state(state["generator"])


def stateful() -> Any:
    memory = Ema()
    return Method("ema", advantage=memory.advantage, state=(memory,))


def _rest(trainer: Any, after: Any) -> Any:
    names = [*SEEN, "step"]
    return [line for line in history(trainer, *names) if line[-1] > after]


@pytest.mark.parametrize(
    ("save", "config"),
    [
        (2, {}),  # at the end of the first epoch: 16 prompts, 8 a step
        (3, {}),  # in the middle of the second
        (4, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 16}),
        (3, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8}),
        (4, {"steps_per_generation": 2, "per_device_train_batch_size": 16}),
    ],
    ids=["epoch end", "mid epoch", "accumulation", "accumulation mid epoch", "off policy"],
)
def test_a_resumed_run_is_the_same_run(build: Build, tmp_path: Path, save: int, config: dict[str, Any]) -> None:
    options = {"save_strategy": "steps", "save_steps": save, "max_steps": 6, **config}
    first, second = (build(method=stateful(), **options) for _ in range(2))
    first.train()
    second.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{save}"))
    assert _rest(first, save) == _rest(second, save)
    assert len(_rest(second, save)) == 6 - save
    for (name, a), b in zip(first.model.named_parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert first.method.state[0].by_id == second.method.state[0].by_id


def test_two_trainers_do_not_share_a_methods_memory(build: Build) -> None:
    method = stateful()
    first, second = build(method=method, max_steps=1), build(method=method, max_steps=1)
    first.train()
    assert first.method.state[0].by_id and not second.method.state[0].by_id and not method.state[0].by_id


def test_a_checkpoint_holds_no_pickle_of_ours_and_keeps_types(tmp_path: Path) -> None:
    state = {
        "tensor": torch.arange(6).view(2, 3),
        "scalar": torch.tensor(True),
        "array": np.arange(3.0),
        "by_id": {3: (1, 2.5), "x": None},
        "kinds": [{"a", "b"}, (), float("inf")],
        "shared": [torch.ones(2)] * 2,
    }
    checkpoint.save(tmp_path, state)
    back = checkpoint.load(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {checkpoint.JSON_NAME, checkpoint.TENSORS_NAME}
    assert torch.equal(back["tensor"], state["tensor"]) and back["scalar"].dtype == torch.bool
    assert isinstance(back["array"], np.ndarray) and back["array"].tolist() == [0, 1, 2]
    assert back["by_id"] == state["by_id"] and back["kinds"] == state["kinds"]
    assert back["shared"][1].tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"state\.0\.1: .*function.* pickle"):
        checkpoint.save(tmp_path, {"a": [1, lambda: 0]})


@pytest.mark.parametrize(
    ("config", "step", "valid", "period"),
    [
        ({"steps_per_generation": 4, "per_device_train_batch_size": 8, "save_steps": 2}, 2, 4, 4),
        ({"num_iterations": 2, "save_steps": 3}, 3, 4, 2),
        ({"steps_per_generation": 4, "per_device_train_batch_size": 8, "num_iterations": 2, "save_steps": 4}, 4, 8, 8),
    ],
)
def test_a_save_point_inside_a_generation_batch_is_refused(
    build: Build, config: dict[str, Any], step: int, valid: int, period: int
) -> None:
    trainer = build(save_strategy="steps", max_steps=12, **config)
    with pytest.raises(ValueError, match=rf"step {step}, .* next valid step is {valid}; .* multiple of {period}"):
        trainer.train()


def test_a_run_that_ends_inside_a_generation_batch_keeps_its_model_but_is_not_resumed(
    build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"steps_per_generation": 4, "per_device_train_batch_size": 8, "save_steps": 4, "max_steps": 6}
    build(save_strategy="steps", **config).train()
    assert "cannot be resumed" in caplog.text
    saved = json.loads((tmp_path / "checkpoint-6" / checkpoint.JSON_NAME).read_text(encoding="utf-8"))
    assert ["resumable", False] in saved["dict"]
    again = build(save_strategy="steps", **{**config, "max_steps": 8})
    with pytest.raises(ValueError, match=r"checkpoint-6 was saved in the middle of a generation batch"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))


def test_a_checkpoint_without_the_methods_memory_is_refused(build: Build, tmp_path: Path) -> None:
    build(save_strategy="steps", save_steps=1, max_steps=1).train()
    with pytest.raises(ValueError, match=r"memory of 0 objects .*'grpo'.* 'ema' has 1"):
        build(method=stateful(), max_steps=2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_epochs_have_trls_order() -> None:
    from trl.trainer.utils import RepeatSampler

    stock, ours = (kind(range(7), 2, 3, 1, True, 5) for kind in (RepeatSampler, EpochSampler))
    epochs = [list(stock) for _ in range(3)]
    assert epochs[0] != epochs[1]
    for epoch in (2, 0, 1):
        ours.set_epoch(epoch)
        assert list(ours) == epochs[epoch]
    assert list(ours) == epochs[2]


def test_micro_steps_follow_the_epochs() -> None:
    assert [micro_steps(s, 0, 4) for s in (1, 3)] == [4, 12]
    assert [micro_steps(s, 6, 4) for s in (1, 2, 3, 4)] == [4, 6, 10, 12]  # the last step of an epoch has 2 of 4


def test_the_same_data_seed_gives_the_same_prompts_and_another_seed_other_rollouts(build: Build) -> None:
    seen = {}

    def spy(ctx: Context) -> Any:
        seen.setdefault(ctx.seed, []).append((list(ctx.columns["prompt"]), [list(c) for c in ctx.completion_ids]))
        return ctx.rewards - ctx.rewards.mean(1, keepdim=True)

    for seed in (0, 1):
        build(method=Method("spy", advantage=spy), seed=seed, data_seed=7, data=tiny_data(32), max_steps=4).train()
    for (prompts_0, drawn_0), (prompts_1, drawn_1) in zip(seen[0], seen[1], strict=True):
        assert prompts_0 == prompts_1
        assert drawn_0 != drawn_1
    build(method=Method("spy", advantage=spy), seed=2, data_seed=8, data=tiny_data(32), max_steps=1).train()
    assert seen[2][0][0] != seen[0][0][0]


def test_a_run_does_not_depend_on_what_happened_between_building_and_training(build: Build) -> None:
    first, second = build(max_steps=2), build(max_steps=2)
    for trainer in (first, second):
        trainer.train()
        torch.rand(3)
    assert history(first, *SEEN) == history(second, *SEEN)


def test_train_can_be_called_twice(build: Build) -> None:
    trainer = build(steps_per_generation=4, per_device_train_batch_size=8, max_steps=2)
    trainer.train()  # half of a generation batch
    trainer.train()
    assert trainer.state.global_step == 2
    assert history(trainer, "reward")[0] != (0,)  # new rollouts, not the rest of the old ones

"""Replay: rows go in and come out with their own padding, and are drawn uniformly."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from rlkit.method import get_method
from rlkit.methods import replay
from tests.tiny import history


def _batch(start=1, rows=3, prompt=3, completion=4):
    """Rows of different lengths with recognisable tokens."""
    P = torch.zeros(rows, prompt, dtype=torch.long)
    C = torch.zeros(rows, completion, dtype=torch.long)
    for i in range(rows):
        P[i, i % prompt :] = start + i
        C[i, : 1 + i % completion] = 10 * (start + i)
    return {
        "prompt_ids": P,
        "prompt_mask": (P > 0).long(),
        "completion_ids": C,
        "completion_mask": (C > 0).long(),
        "advantages": torch.arange(start, start + rows).float(),
        "old_per_token_logps": -C.float(),
        "counted": torch.ones(rows, dtype=torch.bool),
        "num_items_in_batch": (C > 0).sum(),
    }


def _trainer(step=0, **options):
    return SimpleNamespace(
        method=SimpleNamespace(options={"buffer": 6, "repeat": 1, **options}),
        state=SimpleNamespace(global_step=step),
        args=SimpleNamespace(seed=0),
        accelerator=SimpleNamespace(process_index=0),
        processing_class=SimpleNamespace(pad_token_id=0),
        log_value=lambda name, value: None,
    )


def test_cut_and_join_give_the_batch_back():
    batch = _batch()
    back = replay.join(replay.cut(batch), batch, pad=0)
    assert back.keys() == batch.keys()
    trimmed = back["completion_ids"].size(1)
    for key, value in batch.items():
        same = value[:, :trimmed] if key.startswith(("completion", "old")) else value
        assert torch.equal(back[key], same), key


def test_rows_of_two_batches_are_padded_together():
    rows = [*replay.cut(_batch(prompt=2, rows=2)), *replay.cut(_batch(start=5, prompt=4, rows=2, completion=6))]
    out = replay.join(rows, _batch(), pad=0)
    assert out["prompt_ids"].tolist() == [[0, 0, 1, 1], [0, 0, 0, 2], [5, 5, 5, 5], [0, 6, 6, 6]]
    assert out["completion_ids"].tolist() == [[10, 0], [20, 20], [50, 0], [60, 60]]
    assert out["advantages"].tolist() == [1, 2, 5, 6]


def test_draws_are_uniform_without_putting_back():
    counts = Counter(i for seed in range(500) for i in replay.draw(6, 3, seed))
    assert sum(counts.values()) == 1500
    assert all(200 < counts[i] < 300 for i in range(6))
    assert all(len(set(replay.draw(6, 3, seed))) == 3 for seed in range(50))
    more = Counter(replay.draw(4, 10, 0))
    assert sorted(more.values()) == [2, 2, 3, 3]
    assert replay.draw(6, 3, 1) == replay.draw(6, 3, 1)


def test_the_oldest_rows_leave_and_ages_are_told():
    buffer = replay.Buffer()
    for step in range(4):
        out = buffer.batch(_trainer(step), _batch(start=1 + 3 * step))
        assert len(out["advantages"]) == 3
    assert [int(row["advantages"]) for row in buffer.rows] == [7, 8, 9, 10, 11, 12]
    born = (out["advantages"].long() - 1) // 3
    assert torch.equal(out["age"], 3 - born)


def test_stored_log_probs_and_advantages_stay_as_they_were():
    buffer = replay.Buffer()
    for step in range(3):
        out = buffer.batch(_trainer(step), _batch(start=1 + 3 * step))
        expected = -out["completion_ids"].float() * out["completion_mask"]
        assert torch.equal(out["old_per_token_logps"], expected)
        assert torch.equal(out["completion_ids"][:, 0], 10 * out["advantages"].long())


def test_rows_that_do_not_count_go_along_and_are_not_stored():
    buffer, batch = replay.Buffer(), _batch()
    batch["counted"][1] = False
    out = buffer.batch(_trainer(), batch)
    assert sorted(out["advantages"].tolist()) == [1, 2, 3]
    assert out["counted"].tolist() == [True, True, False]
    assert [int(row["advantages"]) for row in buffer.rows] == [1, 3]


def test_a_step_can_train_more_rows_than_it_draws():
    out = replay.Buffer().batch(_trainer(repeat=2), _batch())
    assert Counter(out["advantages"].tolist()) == {1: 2, 2: 2, 3: 2}


def test_without_a_buffer_the_batch_is_left_alone():
    batch = _batch()
    assert replay.Buffer().batch(_trainer(buffer=0), batch) is batch


def test_memory_comes_back():
    buffer, back = replay.Buffer(), replay.Buffer()
    buffer.batch(_trainer(0), _batch())
    back.load_state_dict(buffer.state_dict())
    one, two = (b.batch(_trainer(1), _batch(start=4)) for b in (buffer, back))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert len(buffer.rows) == 6


@pytest.mark.parametrize("wide", [True, False])
def test_token_level_advantages_travel_too(wide):
    batch = _batch()
    if wide:
        batch["advantages"] = batch["advantages"][:, None] * batch["completion_mask"]
    back = replay.join(replay.cut(batch), batch, pad=0)
    assert torch.equal(back["advantages"], batch["advantages"][:, :3] if wide else batch["advantages"])


GROUPS_OF_FIVE = {"num_generations": 5, "per_device_train_batch_size": 20, "max_steps": 2, "loss_type": "dr_grpo"}


def test_with_the_median_baseline_the_pivots_are_neither_stored_nor_trained(build):
    trainer = build(method="mc_grpo+replay", scale_rewards="none", **GROUPS_OF_FIVE)
    trainer.train()
    (buffer,) = trainer.method.state
    assert len(buffer.rows) == 2 * 4 * 4  # steps, prompts, rollouts without the pivot
    assert all(row["counted"] for row in buffer.rows)
    assert all(share >= 0.2 for (share,) in history(trainer, "rows_left_out"))  # a fifth are pivots


def test_without_a_buffer_the_median_baseline_is_left_alone(build):
    alone, combined = get_method("mc_grpo"), get_method("mc_grpo+replay").with_options(buffer=0)
    seen = []
    for method in (alone, combined):
        trainer = build(method=method, scale_rewards="none", **GROUPS_OF_FIVE)
        trainer.train()
        seen.append(history(trainer, "loss", "grad_norm", "reward"))
    assert seen[0] == seen[1]

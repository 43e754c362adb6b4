"""The buffer: first in, first out; any row drawn; what goes in comes out without its padding."""

import random
import time
from collections import Counter

import pytest
import torch

from rlkit.methods.buffer import Bag, ReplayBuffer, columns, cut, join, rows_of
from rlkit.trainers import checkpoint


def batch_of(start=1, rows=3, prompt=3, completion=4):
    """Rows of different lengths with recognisable tokens: row i has prompt tokens start + i."""
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


def row(born, prompt="a", right=False):
    return {"prompt": prompt, "born": born, "right": right, "ids": torch.arange(born + 1), "A": torch.tensor(0.5)}


def filled(count, **kinds):
    buffer = ReplayBuffer()
    for i in range(count):
        buffer.add(row(i, **{name: rule(i) for name, rule in kinds.items()}))
    return buffer


def births(buffer):
    return [r["born"] for r in buffer]


def test_a_bag_gives_up_any_item_and_draws_the_others_uniformly():
    bag = Bag("abcdef")
    bag.discard("b")
    bag.discard("f")
    bag.add("g")
    assert set(bag.items) == set("acdeg") and "b" not in bag and "g" in bag
    counts = Counter(item for seed in range(500) for item in bag.draw(2, random.Random(seed)))
    assert all(150 < counts[item] < 250 for item in "acdeg")  # 200 each
    assert sorted(bag.draw(9, random.Random(0))) == sorted("acdeg")


def test_the_oldest_rows_leave_first():
    buffer = filled(5)
    buffer.shrink(3)
    assert births(buffer) == [2, 3, 4]
    buffer.forget(before=4)
    assert births(buffer) == [4] and buffer.uses == Counter({0: 4})


def test_right_rows_stay_longer_in_their_share_of_the_places():
    """N = 5, delta = .4: 3 places for the freshest, 2 for right ones that are older."""
    buffer = filled(10, right=lambda i: i % 2 == 0)
    buffer.shrink(5, delta=0.4)
    assert births(buffer) == [4, 6, 7, 8, 9]
    assert [r["right"] for r in buffer.kept.values()] == [True, True]
    buffer.shrink(5, delta=0.0)
    assert births(buffer) == [7, 8, 9]  # without such places the two leave


def test_rows_of_a_prompt_leave_by_themselves():
    buffer = filled(6, prompt=lambda i: "ab"[i % 2])
    buffer.shrink_prompt("a", 1)
    assert births(buffer) == [1, 3, 4, 5]
    assert [r["born"] for r in buffer.of("a")] == [4] and [r["born"] for r in buffer.of("b")] == [1, 3, 5]
    buffer.shrink_prompt("b", 0)
    assert list(buffer.prompts) == ["a"] and buffer.of("b") == []


def test_uses_and_ages_are_counted():
    buffer = filled(3)
    old = buffer.of("a")
    buffer.use(old[:2], step=4)
    buffer.use(old[:1], step=5)
    assert buffer.ages == Counter({4: 1, 3: 1, 5: 1})
    buffer.shrink(0)
    assert buffer.uses == Counter({2: 1, 1: 1, 0: 1})


def test_the_next_draws_are_the_same_after_a_save(tmp_path):
    buffer = filled(9, prompt=lambda i: "abc"[i % 3], right=lambda i: i % 2 == 0)
    buffer.shrink(6, delta=0.5)
    buffer.use(buffer.draw(2, random.Random(0)), 9)
    checkpoint.save(tmp_path, {"state": buffer.state_dict()})
    back = ReplayBuffer()
    back.load_state_dict(checkpoint.load(tmp_path)["state"])
    for other in (buffer, back):  # also after more has happened
        other.add(row(20, "b"))
        other.shrink(6, delta=0.5)
    drawn = [[r["born"] for r in b.draw(3, random.Random(1))] for b in (buffer, back)]
    assert drawn[0] == drawn[1] and births(buffer) == births(back)
    assert [r["uses"] for r in buffer] == [r["uses"] for r in back]
    assert (buffer.ages, buffer.uses, sorted(buffer.prompts)) == (back.ages, back.uses, sorted(back.prompts))
    assert all(
        torch.equal(a["ids"], b["ids"]) and torch.equal(a["A"], b["A"]) for a, b in zip(buffer, back, strict=True)
    )


def test_an_empty_buffer_can_be_saved(tmp_path):
    checkpoint.save(tmp_path, {"state": ReplayBuffer().state_dict()})
    back = ReplayBuffer()
    back.load_state_dict(checkpoint.load(tmp_path)["state"])
    assert len(back) == 0 and back.draw(3, random.Random(0)) == []


def test_rows_become_a_few_long_tensors_and_rows_again():
    rows = [row(i, "xy"[i % 2]) for i in range(4)]
    stored = columns(rows)
    assert stored["ids"][0].tolist() == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3] and stored["prompt"] == ["x", "y", "x", "y"]
    for a, b in zip(rows, rows_of(stored), strict=True):
        assert a.keys() == b.keys() and torch.equal(a["ids"], b["ids"]) and b["A"].ndim == 0


def test_cut_and_join_give_the_batch_back():
    batch = batch_of()
    back = join(cut(batch), batch, pad=0)
    assert back.keys() == batch.keys()
    trimmed = back["completion_ids"].size(1)
    for key, value in batch.items():
        same = value[:, :trimmed] if key.startswith(("completion", "old")) else value
        assert torch.equal(back[key], same) and back[key].dtype == value.dtype, key


def test_rows_of_two_batches_are_padded_together_each_on_its_own_side():
    rows = [*cut(batch_of(prompt=2, rows=2)), *cut(batch_of(start=5, prompt=4, rows=2, completion=6))]
    out = join(rows, batch_of(), pad=0)
    assert out["prompt_ids"].tolist() == [[0, 0, 1, 1], [0, 0, 0, 2], [5, 5, 5, 5], [0, 6, 6, 6]]
    assert out["completion_ids"].tolist() == [[10, 0], [20, 20], [50, 0], [60, 60]]
    assert out["prompt_mask"].tolist() == [[0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 1, 1]]
    assert out["completion_mask"].tolist() == [[1, 0], [1, 1], [1, 0], [1, 1]]
    assert out["advantages"].tolist() == [1, 2, 5, 6]


@pytest.mark.parametrize("wide", [True, False])
def test_token_level_advantages_travel_too(wide):
    batch = batch_of()
    if wide:
        batch["advantages"] = batch["advantages"][:, None] * batch["completion_mask"]
    back = join(cut(batch), batch, pad=0)
    assert torch.equal(back["advantages"], batch["advantages"][:, :3] if wide else batch["advantages"])


def test_a_hundred_thousand_rows_cost_no_more_each_than_a_thousand():
    def cycle(size):
        """Seconds for one row to come and one to leave, and for one draw, in a full buffer."""
        buffer, rng = ReplayBuffer(), random.Random(0)
        for i in range(size):
            buffer.add({"prompt": str(i % (size // 4)), "born": i, "right": i % 3 == 0})
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for i in range(400):
                buffer.add({"prompt": str(i), "born": size + i, "right": i % 3 == 0})
                buffer.shrink(size, delta=0.2)
                buffer.draw(1, rng)
            best = min(best, time.perf_counter() - start)
        return best

    assert cycle(100_000) < 10 * cycle(1_000)  # a linear operation would be 100 times slower

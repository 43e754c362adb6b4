"""Staleness: a queue in which rollouts wait."""

from types import SimpleNamespace

import pytest

from rlkit.methods import staleness


def _trainer(updates, accumulation=1, generate_every=1):
    return SimpleNamespace(
        method=SimpleNamespace(options={"updates": updates}),
        args=SimpleNamespace(gradient_accumulation_steps=accumulation),
        generate_every=generate_every,
    )


def test_ages_in_generation_batches():
    assert staleness.waiting(8, 1, 1) == 8
    assert staleness.waiting(8, 1, 4) == 2  # a batch lasts four updates
    assert staleness.waiting(3, 4, 1) == 12  # an update takes four batches
    assert staleness.waiting(0, 1, 4) == 0


def test_an_age_between_two_batches_is_refused_with_its_neighbours():
    with pytest.raises(ValueError, match="Nearest: 4 or 8"):
        staleness.waiting(6, 1, 4)
    with pytest.raises(ValueError, match="at least 0"):
        staleness.waiting(-1, 1, 1)


def test_every_batch_is_trained_two_updates_late_after_the_start():
    queue = staleness.Queue()
    trained = [queue.batch(_trainer(2), {"name": step})["name"] for step in range(6)]
    assert trained == [0, 1, 0, 1, 2, 3]


def test_without_an_age_the_batch_is_left_alone():
    queue, batch = staleness.Queue(), {"name": 0}
    assert queue.batch(_trainer(0), batch) is batch
    assert queue.batches == []


def test_memory_comes_back():
    queue, back = staleness.Queue(), staleness.Queue()
    queue.batch(_trainer(1), {"name": 0})
    back.load_state_dict(queue.state_dict())
    assert back.batch(_trainer(1), {"name": 1})["name"] == 0

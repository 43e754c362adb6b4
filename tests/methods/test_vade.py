"""VADE: the gain p(1-p)^2, Thompson draws, counts that decay."""

import pytest
import torch
from datasets import Dataset

from rlkit.methods import vade


def test_gain_of_hand_computed_rates():
    p = torch.tensor([1 / 8, 1 / 3, 1 / 2, 7 / 8])
    assert vade.gain(p).tolist() == pytest.approx([0.0957, 0.1481, 0.125, 0.0137], abs=5e-5)
    assert vade.gain(p, "p(1-p)").tolist() == pytest.approx([0.1094, 0.2222, 0.25, 0.1094], abs=5e-5)
    grid = torch.linspace(0, 1, 301)
    assert grid[vade.gain(grid).argmax()] == pytest.approx(1 / 3, abs=0.01)


def test_expected_gain_of_hand_computed_posteriors():
    a, b = torch.tensor([2.0, 6, 1]), torch.tensor([6.0, 2, 1])
    assert vade.expected_gain(a, b).tolist() == pytest.approx([0.11667, 0.05, 0.08333], abs=1e-5)
    assert vade.expected_gain(a, b, "p(1-p)")[0] == pytest.approx(0.1667, abs=1e-4)


def test_expected_gain_is_the_mean_over_draws():
    a, b = torch.full((20_000,), 2.0), torch.full((20_000,), 6.0)
    drawn = vade.thompson(a, b, seed=1, step=2)
    assert vade.gain(drawn).mean() == pytest.approx(vade.expected_gain(a[0], b[0]).item(), abs=1e-3)


def test_draws_depend_on_seed_and_step_only():
    a, b = torch.ones(5), torch.ones(5)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first = vade.thompson(a, b, 0, 7)
    assert torch.rand(1) == expected  # torch's own state did not move
    assert torch.equal(first, vade.thompson(a, b, 0, 7))
    assert not torch.equal(first, vade.thompson(a, b, 0, 8))
    assert not torch.equal(first, vade.thompson(a, b, 1, 7))


def _posterior(size=3):
    counts = vade.Posterior()
    counts.start(Dataset.from_dict({"prompt": list("abc")[:size], "id": [f"train/{i}" for i in range(size)]}))
    return counts


def test_counts_decay_and_learn():
    counts, rows = torch.zeros(2, 3), torch.tensor([0, 0, 2, 2])
    counts = vade.learned(counts, rows, torch.tensor([True, False, True, True]), per_step=0.9, per_visit=0.5)
    assert counts.tolist() == [[1, 0, 2], [1, 0, 0]]
    counts = vade.learned(counts, torch.tensor([0, 0]), torch.tensor([True, True]), per_step=0.9, per_visit=0.5)
    assert counts[0].tolist() == pytest.approx([0.5 * 0.9 * 1 + 2, 0, 1.8])
    assert counts[1].tolist() == pytest.approx([0.45, 0, 0])


def test_memory_comes_back_and_belongs_to_its_data():
    counts = _posterior()
    counts.counts[0, 1] = 1.0
    saved = {key: value.clone() for key, value in counts.state_dict().items()}
    back = vade.Posterior()
    back.load_state_dict(saved)
    back.start(Dataset.from_dict({"prompt": list("abc")}))
    assert back.counts[0].tolist() == [0, 1, 0]
    other = vade.Posterior()
    other.load_state_dict(saved)
    with pytest.raises(ValueError, match="counts are of 3 prompts, and the data set has 1"):
        other.start(Dataset.from_dict({"prompt": ["a"]}))


def test_counts_find_the_prompts_between_solved_and_hopeless():
    """Rates 0, 1/3 and 1: after a few visits the middle prompt has the largest gain."""
    counts, rows = torch.zeros(2, 3), torch.tensor([0] * 8 + [1] * 9 + [2] * 8)
    for _ in range(5):
        counts = vade.learned(counts, rows, torch.tensor([0] * 8 + [1] * 3 + [0] * 6 + [1] * 8) > 0, 0.99, 0.5)
    a, b = counts + 1
    assert vade.expected_gain(a, b).argmax() == 1
    wins = [int(vade.gain(vade.thompson(a, b, 0, step)).argmax()) for step in range(200)]
    assert wins.count(1) > 150


def test_rows_that_cannot_be_told_apart_are_refused():

    with pytest.raises(ValueError, match="2 rows repeat one"):
        vade.Posterior().start(Dataset.from_dict({"prompt": ["a", "a", "b", "b"]}))

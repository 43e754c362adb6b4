"""Token importance: scores and selections against hand-computed values, and what a selector may never choose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import tensor

import rlkit
from rlkit.method import Context
from rlkit.methods import tip

SELECTORS = [method for method in rlkit.catalog() if method.paper == "2604.14084"]
ids = pytest.mark.parametrize("method", SELECTORS, ids=lambda method: method.name)


def test_soft_or_of_nothing_is_nothing_and_of_one_is_one() -> None:
    x = torch.linspace(0, 1, 11)
    assert torch.equal(tip.soft_or(tensor(0.0), tensor(0.0)), tensor(0.0))
    assert torch.allclose(tip.soft_or(torch.ones(11), x), torch.ones(11))
    assert torch.allclose(tip.soft_or(x, torch.zeros(11)), x)
    assert tip.soft_or(tensor(0.5), tensor(0.2)).item() == pytest.approx(0.6)
    assert torch.allclose(tip.soft_or(x, x.flip(0)), 1 - (1 - x) * (1 - x.flip(0)))


def test_the_papers_examples_of_overconfident_and_wrong() -> None:
    """Table B.5: forward KL 5.27, 3.54, 5.58 and score 5.24, 3.27, 5.44 say what the normalised entropies were."""
    found = tip.overconfident_and_wrong(tensor([5.27, 3.54, 5.58]), tensor([0.006, 0.076, 0.025]))
    assert found.tolist() == pytest.approx([5.24, 3.27, 5.44], abs=6e-3)


def test_entropy_is_cut_at_the_98th_percentile_of_the_batch_and_scaled_to_0_1() -> None:
    h = torch.arange(101.0).reshape(1, 101)
    found = tip.normalised_entropy(h, torch.ones(1, 101))
    # The 98th percentile of 0, 1 ... 100 is 98: everything above counts as 98.
    assert torch.allclose(found[0, :99], torch.arange(99.0) / 98)
    assert torch.equal(found[0, 98:], torch.ones(3))
    padded = tip.normalised_entropy(
        torch.cat([h, torch.full((1, 5), 1e6)], 1), torch.cat([torch.ones(1, 101), torch.zeros(1, 5)], 1)
    )
    assert torch.equal(padded[:, :101], found)
    assert not padded[:, 101:].any()


def test_divergence_is_scaled_over_the_batch_not_over_a_rollout() -> None:
    found = tip.normalised(tensor([[1.0, 3.0, 9.0], [2.0, 5.0, 9.0]]), tensor([[1, 1, 0], [1, 1, 0]]))
    assert torch.allclose(found, tensor([[0.0, 0.5, 0.0], [0.25, 1.0, 0.0]]))
    assert not tip.normalised(torch.full((2, 3), 4.0), torch.ones(2, 3)).any()
    assert not tip.normalised(torch.ones(2, 3), torch.zeros(2, 3)).any()


def test_top_k_is_per_rollout_with_floor_and_at_least_one_token() -> None:
    score = tensor([[5.0, 1.0, 4.0, 3.0, 2.0], [0.1, 0.3, 0.2, 9.0, 9.0], [1.0, 9.0, 9.0, 9.0, 9.0]])
    mask = tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    assert tip.kept_counts(mask, 0.5).tolist() == [2, 1, 0]
    assert tip.top_per_rollout(score, mask, 0.5).tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert tip.top_per_rollout(score, mask, 0.5, lowest=True).tolist() == [
        [0, 1, 0, 0, 1],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    assert tip.top_per_rollout(torch.zeros(1, 4), torch.ones(1, 4), 0.5).tolist() == [[1, 1, 0, 0]]
    assert torch.equal(tip.top_per_rollout(score, mask, 1.0), mask.float())


@pytest.mark.parametrize(("retention", "m", "kept"), [(0.29, 100, 29), (0.1, 10, 1), (0.7, 10, 7), (0.08, 14, 1)])
def test_floor_does_not_stumble_over_binary_fractions(retention: float, m: int, kept: int) -> None:
    assert tip.kept_counts(torch.ones(1, m), retention).item() == kept


@pytest.mark.parametrize("retention", [0.0, -0.1, 1.1], ids=str)
def test_a_retention_out_of_range_is_refused(retention: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        tip.kept_counts(torch.ones(1, 4), retention)


def test_sampling_draws_in_proportion_to_the_score() -> None:
    generator = torch.Generator().manual_seed(0)
    score = tensor([[1.0, 2.0, 7.0, 50.0]]).expand(20_000, 4)
    mask = tensor([[1, 1, 1, 0]]).expand(20_000, 4)
    first = tip.sampled_per_rollout(score, mask, 0.34, generator)
    assert (first.sum(1) == 1).all()
    assert first.mean(0).tolist() == pytest.approx([0.1, 0.2, 0.7, 0.0], abs=0.012)
    # Two without replacement: P(the first is among them) = .1 + .2 (.1 / .8) + .7 (.1 / .3) = .3583
    two = tip.sampled_per_rollout(score, mask, 0.67, generator)
    assert (two.sum(1) == 2).all()
    assert two[:, 0].mean().item() == pytest.approx(0.3583, abs=0.012)


def test_quadrants_hand_computed() -> None:
    h, d = tensor([[0.5, 0.5, 0.1, 0.1, 0.5]]), tensor([[2.0, 0.1, 2.0, 0.1, 2.0]])
    assert tip.quadrants(h, d, tensor([[1, 1, 1, 1, 0]])).tolist() == [[1, 2, 3, 4, 0]]


def a_context(method: Any, seed: int, retention: float = 0.4, **given: Any) -> Context:
    """Random scores on rollouts of different lengths, huge values where there is no token."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 13, (6, 1), generator=generator)
    mask = (torch.arange(12) < lengths).long()
    values = {name: torch.rand(6, 12, generator=generator) * 3 for name in ("entropies", "divergence", "forward")}
    values = {name: value.masked_fill(mask == 0, 1e4) for name, value in values.items()}
    return Context(mask=mask, seed=seed, options={"retention": retention}, **{**values, **given})


@ids
def test_no_selector_chooses_padding_and_each_keeps_its_share(method: Any) -> None:
    for seed in range(5):
        ctx = a_context(method, seed)
        weight = method.token_weight(ctx)
        assert not weight[ctx.mask == 0].any()
        assert set(weight.unique().tolist()) <= {0.0, 1.0}
        assert torch.equal(weight.sum(1).long(), tip.kept_counts(ctx.mask, 0.4))


@ids
def test_what_stands_behind_a_completion_changes_nothing(method: Any) -> None:
    ctx = a_context(method, 3)
    zeroed = {
        name: getattr(ctx, name).masked_fill(ctx.mask == 0, 0.0) for name in ("entropies", "divergence", "forward")
    }
    assert torch.equal(method.token_weight(ctx), method.token_weight(a_context(method, 3, **zeroed)))


CHOICES = {
    # h = 0, 1, .5, 0 and d = 0, .1, .5, .9 over the batch: Soft-OR 0, 1, .75, .9
    "tip": [0, 1, 0, 1],
    "tip_bottom": [1, 0, 1, 0],
    "tip_entropy": [0, 1, 1, 0],
    "tip_divergence": [0, 0, 1, 1],
    "tip_q3": [1, 0, 0, 1],
}


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_what_each_selector_keeps_hand_computed(name: str) -> None:
    # Many tokens at the upper end in a second rollout hold the 98th percentile at 2 and the largest divergence at 10.
    entropies = torch.cat([tensor([[0.0, 2.0, 1.0, 0.0]]), torch.full((1, 4), 2.0)])
    divergence = torch.cat([tensor([[0.0, 1.0, 5.0, 9.0]]), torch.full((1, 4), 10.0)])
    # Q3 scores forward (1 - h): .5, 0, .4, 3
    forward = torch.cat([tensor([[0.5, 9.0, 0.8, 3.0]]), torch.full((1, 4), 10.0)])
    ctx = Context(
        mask=torch.ones(2, 4),
        entropies=entropies,
        divergence=divergence,
        forward=forward,
        options={"retention": 0.5},
    )
    weight = rlkit.catalog()[name].token_weight
    assert weight is not None and weight(ctx)[0].tolist() == CHOICES[name]


def test_random_choices_follow_seed_and_step() -> None:
    method = rlkit.catalog()["tip_random"]
    assert method.token_weight is not None
    first, again, later = (method.token_weight(a_context(method, 1, step=step)) for step in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)

"""MinPRO: a token's ratio times the smallest one before it."""

import itertools

import pytest
import torch

from rlkit.methods import minpro

RATIO = torch.tensor([[0.8, 1.1, 0.5, 1.3]])
MASK = torch.ones(1, 4)


def test_weights_of_the_hand_computed_row():
    assert minpro.prefix_weight(RATIO, MASK).tolist() == [pytest.approx([0.8, 0.88, 0.4, 0.65])]
    assert RATIO.cumprod(1).tolist() == [pytest.approx([0.8, 0.88, 0.44, 0.572])]
    assert minpro.prefix_weight(RATIO, MASK, 0.2).tolist() == [pytest.approx([0.8, 0.88, 0.64, 0.6])]


def test_the_cap_holds_where_all_ratios_are_large():
    high = torch.full((1, 4), 1.5)
    assert minpro.prefix_weight(high, MASK).tolist() == [pytest.approx([1.5, 2.25, 2.25, 2.25])]
    assert minpro.prefix_weight(high, MASK, 0.2, 0.28).tolist() == [pytest.approx([1.28] * 4)]


def test_tokens_outside_the_mask_do_not_count():
    mask = torch.tensor([[0, 1, 1, 1]])
    assert minpro.smallest_before(RATIO, mask).tolist() == [pytest.approx([1.0, 1.0, 1.1, 0.5])]


def test_fresh_rollouts_have_weight_one():
    assert minpro.prefix_weight(torch.ones(2, 5), torch.ones(2, 5), 0.2).eq(1).all()


def test_variance_lies_under_the_prefix_product_and_bias_under_the_token_ratio():
    """All sequences of a toy policy of independent tokens, vocabulary 3 and length 4: exact moments of the weights."""
    old = torch.tensor([0.5, 0.3, 0.2])
    new = torch.tensor([0.3, 0.3, 0.4])
    sequences = torch.tensor(list(itertools.product(range(3), repeat=4)))
    p = old[sequences].prod(1)
    ratio = (new / old)[sequences]
    last = {
        "product": ratio.cumprod(1)[:, -1],
        "token": ratio[:, -1],
        "minpro": minpro.prefix_weight(ratio, torch.ones_like(ratio))[:, -1],
    }
    variance = {name: float((p * w**2).sum() - (p * w).sum() ** 2) for name, w in last.items()}
    assert variance["minpro"] < variance["token"] < variance["product"]

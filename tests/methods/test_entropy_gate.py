"""Entropy gates: the quantile, phi = p (1 - p), and what a gate leaves of the update."""

import pytest
import torch

from rlkit.methods import entropy_gate
from tests.tiny import history

H = torch.tensor([[0.1, 0.9, 0.5, 0.3, 9.0]])
MASK = torch.tensor([[1, 1, 1, 1, 0]])


def test_the_share_of_tokens_with_the_highest_entropy():
    assert entropy_gate.top_entropy(H, MASK, 0.25).tolist() == [[False, True, False, False, False]]
    assert entropy_gate.top_entropy(H, MASK, 0.5).tolist() == [[False, True, True, False, False]]
    assert entropy_gate.top_entropy(H, MASK, 1.0).tolist() == [[True, True, True, True, False]]
    assert entropy_gate.top_entropy(H, MASK, 0.0).tolist() == [[False, True, False, False, False]]
    assert not entropy_gate.top_entropy(H, 0 * MASK, 0.5).any()


def test_it_is_the_mask_of_the_library():
    from types import SimpleNamespace

    from trl import GRPOTrainer

    accelerator = SimpleNamespace(pad_across_processes=lambda x, **_: x, gather=lambda x: x)
    generator = torch.Generator().manual_seed(0)
    entropies, mask = torch.rand(6, 9, generator=generator), (torch.rand(6, 9, generator=generator) < 0.7).long()
    for share in (0.1, 0.2, 0.37, 1.0):
        theirs = GRPOTrainer.get_high_entropy_mask(SimpleNamespace(accelerator=accelerator), entropies, mask, 1 - share)
        assert torch.equal(theirs, entropy_gate.top_entropy(entropies, mask, share))


def test_attenuation_of_hand_computed_probabilities():
    phi = entropy_gate.attenuation(torch.tensor([0.5, 0.9, 0.99]).log())
    assert phi.tolist() == pytest.approx([0.25, 0.09, 0.0099], abs=1e-6)


def test_a_sure_wrong_token_keeps_nine_percent_of_its_update():
    logps = torch.tensor([[0.9, 0.4]]).log()
    gate = entropy_gate.entropy_gate(torch.tensor([[0.2, 0.8]]), logps, torch.ones(1, 2), share=0.5)
    assert (gate * -1.0).tolist() == [pytest.approx([-0.09, -1.0])]


def test_a_constant_gate():
    logps = torch.zeros(1, 5)
    assert entropy_gate.entropy_gate(H, logps, MASK, 0.25, low=0.3).tolist() == [pytest.approx([0.3, 1, 0.3, 0.3, 0.3])]
    assert entropy_gate.entropy_gate(H, logps, MASK, 0.25, low=1.0).eq(1).all()
    with pytest.raises(ValueError, match=r"low is a number or 'p\(1-p\)', not 'p'"):
        entropy_gate.entropy_gate(H, logps, MASK, low="p")


def test_it_trains_as_the_library_does(build):
    norms = []
    for options in ({"stock": True, "top_entropy_quantile": 0.2}, {"method": "top_entropy"}):
        trainer = build(loss_type="dapo", **options)
        trainer.train()
        norms.append(history(trainer, "loss", "grad_norm"))
    for ours, theirs in zip(*norms, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)

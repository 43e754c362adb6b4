"""4-bit weights with adapters on top, on a CPU: every family trains, the reference is the base, faults are errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import rlkit
from rlkit.models import adapters, load_model
from rlkit.trainers.watch import without_gradient
from tests.tiny import Build, history

SMALL = {"preset": "tiny", "quantization": "nf4", "lora_r": 4, "max_steps": 2, "train_size": 64, "eval_size": 4}
RLVR = {**SMALL, "prompts_per_step": 4, "num_generations": 4, "reward": "digits"}


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("method", "own"),
    [
        pytest.param("grpo", {**RLVR, "beta": 0.04}, id="grpo with a KL penalty"),
        pytest.param("mc_grpo", RLVR, id="mc_grpo"),
        pytest.param("replay_uniform", {**RLVR, "buffer": 16}, id="replay"),
        pytest.param("tip", {**SMALL, "prompts_per_step": 8, "task": "planted"}, id="distillation"),
    ],
)
def test_adapters_move_and_the_weights_below_stay(method: str, own: dict[str, Any]) -> None:
    trainer = rlkit.trainer(method, **own)
    base = trainer.model.get_base_model()
    assert len(adapters.four_bit_layers(base)) == 7 * base.config.num_hidden_layers
    before = weights(trainer.model)
    trainer.train()
    moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if ".lora_" in name}
    if own.get("beta"):
        assert history(trainer, "kl")[0] == (0,)  # the reference is the model without its adapter
    if method == "tip":
        assert adapters.four_bit_layers(trainer.teacher_model)


def test_evaluation_on_the_way_leaves_gradients_as_they_are() -> None:
    """On some CPUs bitsandbytes repacks weights in the first pass in eval mode; adapters got 0 from then on."""
    runs = rlkit.run(["grpo"], seeds=1, workers=0, progress=False, **{**RLVR, "eval_every": 1, "max_steps": 3})
    norms = runs.frame[runs.frame["metric"] == "grad_norm"]["value"]
    assert len(norms) == 3 and (norms > 0).all()
    trainer = rlkit.trainer("grpo", **RLVR)
    assert not any(layer.support_avx512bf16_for_cpu for layer in adapters.four_bit_layers(trainer.model))


def test_the_fault_of_bitsandbytes_itself_is_noticed() -> None:
    """With its fast path back on: where the CPU has AVX512-BF16 that is an error, elsewhere the path is never taken."""
    trainer = rlkit.trainer("grpo", **{**RLVR, "max_steps": 3})
    layers = adapters.four_bit_layers(trainer.model)
    for layer in layers:
        layer.support_avx512bf16_for_cpu = has_fast_path()
    trainer.model.eval()
    with torch.no_grad():
        trainer.model(input_ids=torch.ones(2, 6, dtype=torch.long))
    trainer.model.train()
    if not has_fast_path():
        trainer.train()
        return
    with pytest.raises((ValueError, RuntimeError), match=r"did not move|gradient of exactly 0|leaf Variable"):
        trainer.train()


def has_fast_path() -> bool:
    from bitsandbytes.nn import Linear4bit

    return bool(Linear4bit(64, 64).support_avx512bf16_for_cpu)


def test_a_users_own_4_bit_model_is_made_trainable() -> None:
    model, _ = load_model("chain", quantization="nf4")
    for layer in adapters.four_bit_layers(model):
        layer.support_avx512bf16_for_cpu = True
    load_model(model)
    assert not any(layer.support_avx512bf16_for_cpu for layer in adapters.four_bit_layers(model))


def test_rounding_to_4_bits_is_all_that_changes() -> None:
    """NF4 keeps about 4 bits: the weights of the two differ by a tenth, and the text of an answer often stays."""
    whole, bits = (load_model("chain", quantization=kind)[0] for kind in ("none", "nf4"))
    layer = adapters.four_bit_layers(bits)[0]
    from bitsandbytes.functional import dequantize_4bit

    dense = dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    first = next(p for name, p in whole.named_parameters() if name.endswith("layers.0.self_attn.q_proj.weight"))
    assert 0.02 < ((dense - first).norm() / first.norm()).item() < 0.15


def test_nothing_to_train_is_an_error() -> None:
    with pytest.raises(ValueError, match="lora_r is 0: nothing could be trained"):
        rlkit.trainer("grpo", **{**RLVR, "lora_r": 0})
    with pytest.raises(ValueError, match="quantization is none or nf4, not 'int3'"):
        rlkit.trainer("grpo", **{**RLVR, "quantization": "int3"})


def test_two_seeds_draw_other_adapters_and_one_seed_the_same() -> None:
    drawn = [weights(rlkit.trainer("grpo", **RLVR, seed=seed).model) for seed in (0, 1, 0)]
    name = next(name for name in drawn[0] if ".lora_A" in name)
    assert torch.equal(drawn[0][name], drawn[2][name]) and not torch.equal(drawn[0][name], drawn[1][name])


def test_a_gradient_of_exactly_0_with_advantages_is_an_error(build: Build) -> None:
    trainer = build(max_steps=4)
    for p in trainer.model.parameters():
        p.register_hook(torch.zeros_like)
    with pytest.raises(ValueError, match=r"(\d+) of \1 trained tensors got a gradient of exactly 0 in 2 steps"):
        trainer.train()


def test_no_gradient_without_advantages_is_none(build: Build) -> None:
    trainer = build(max_steps=3, reward=lambda completions, **columns: [1.0] * len(completions))
    trainer.train()
    assert trainer.state.global_step == 3
    assert without_gradient(trainer.model)[1] > 0


def test_a_preset_for_a_gpu_says_so_where_there_is_none() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=r"'gpu' needs an NVIDIA GPU.*preset small"):
        rlkit.trainer("mc_grpo", preset="gpu", model="chain", task="chain")

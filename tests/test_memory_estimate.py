"""The estimate of memory: against values worked out by hand, and against what models on a CPU really hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, Qwen2Config, Qwen3Config

import rlkit
from rlkit.doctor.cost import cost
from rlkit.doctor.memory import GB, NF4, SLACK, Estimate, Load, estimate, smaller
from rlkit.doctor.shapes import SHAPES, Shape, of_config, shape_of
from rlkit.models import load_model
from rlkit.models.adapters import four_bit_layers
from rlkit.trainers.out_of_memory import OutOfMemory
from tests.tiny import Build, length_reward, tiny_model

BASE = Shape(64, 3, 4, 4, 16, 192, 20, True)


def test_parameters_of_the_known_models() -> None:
    """Their cards say 0.49 B, 1.54 B (0.36 and 1.31 without embeddings), 0.6, 1.7 and 4.0 B."""
    billions = {name.split("/")[1]: (s.linear_parameters + s.other_parameters) / 1e9 for name, s in SHAPES.items()}
    assert billions["SmolLM2-135M-Instruct"] == pytest.approx(0.1345, abs=1e-4)
    assert billions["Qwen2.5-0.5B-Instruct"] == pytest.approx(0.494, abs=1e-3)
    assert billions["Qwen2.5-1.5B-Instruct"] == pytest.approx(1.544, abs=1e-3)
    assert billions["Qwen3-0.6B"] == pytest.approx(0.596, abs=1e-3)
    assert billions["Qwen3-1.7B"] == pytest.approx(1.721, abs=1e-3)
    assert billions["Qwen3-4B"] == pytest.approx(4.022, abs=1e-3)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(Qwen2Config(tie_word_embeddings=False, num_key_value_heads=2), id="qwen2"),
        pytest.param(Qwen3Config(tie_word_embeddings=True, head_dim=32), id="qwen3"),
    ],
)
def test_a_shape_counts_what_the_model_has(config: Any) -> None:
    for name, value in {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}.items():
        setattr(config, name, value)
    config.intermediate_size, config.layer_types = 96, ["full_attention"] * 2
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = of_config(config)
    assert shape.linear_parameters + shape.other_parameters == sum(p.numel() for p in model.parameters())


def test_bytes_of_a_4_bit_model_and_its_adapters_are_those_that_it_holds() -> None:
    trainer = rlkit.trainer("grpo", preset="tiny", quantization="nf4", lora_r=4, max_steps=1)
    model, shape = trainer.model.get_base_model(), shape_of("chain")
    layers = four_bit_layers(model)
    packed = sum(layer.weight.numel() for layer in layers)
    scales = sum(layer.weight.quant_state.absmax.numel() for layer in layers)
    assert packed == shape.linear_parameters / 2 and scales == shape.linear_parameters / 64
    load = Load(rows=64, micro_batch=64, completion=36, lora_r=4, checkpointing=False, number=4)
    found = estimate(shape, load)
    adapters = [p for p in trainer.model.parameters() if p.requires_grad]
    assert found.always["adapters"] == sum(p.numel() * p.element_size() for p in adapters)
    trainer.train()
    moments = [t for state in trainer.optimizer.state.values() for t in state.values() if t.numel() > 1]
    assert found.always["optimizer (two moments of AdamW)"] == sum(t.numel() * t.element_size() for t in moments)


def test_the_cache_holds_what_is_said() -> None:
    model, _ = load_model("chain")
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=torch.ones(3, 10, dtype=torch.long), past_key_values=cache)
    held = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)
    assert held == 3 * 10 * shape_of("chain").cache_per_token


def test_activations_are_what_the_backward_pass_keeps() -> None:
    """All layers of the tiny base in 32 bits, without checkpointing: to a fifth."""
    model, _ = load_model("chain")
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.is_floating_point():
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    states: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: states.append(tensor) or tensor):
        out = model.model(input_ids=torch.ones(8, 40, dtype=torch.long))
    load = Load(rows=8, micro_batch=8, completion=24, prompt=16, lora_r=0, checkpointing=False, number=4)
    said = estimate(shape_of("chain"), Load(**{**vars(load), "quantization": "none"})).update["activations"]
    assert out.last_hidden_state.requires_grad
    assert said == pytest.approx(sum(kept.values()), rel=0.2)


def test_the_parts_by_hand() -> None:
    """64 wide, 3 layers: 3 x (4 x 64 x 64 + 3 x 64 x 192) = 159,744 parameters in linear maps."""
    found = estimate(BASE, Load(rows=8, micro_batch=2, completion=10, prompt=6, lora_r=2, number=2))
    assert BASE.linear_parameters == 159_744 and BASE.other_parameters == 20 * 64 + 64 + 3 * 128
    assert found.always["weights"] == pytest.approx(159_744 * NF4 + 1728 * 2)
    assert pytest.approx(0.516, abs=1e-3) == NF4
    assert found.generation["cache of keys and values"] == 8 * 16 * (2 * 3 * 4 * 16) * 2
    assert found.update["activations"] == 32 * (12 * 64 + 4 * 192) * 2 + 3 * 32 * 64 * 2
    assert found.update["tile of logits"] == 32 * 20 * 2
    rest = sum(value for _, part, value in found.rows() if "unusable" not in part and "update" not in _)
    assert found.peak > rest and found.always[f"unusable, {SLACK:.0%} (assumed)"] > 0


def test_goals_of_the_preset_for_consumer_cards() -> None:
    """By estimate: under 8 GB for 0.5 B parameters, under 12 GB for 1.5 B, 8 rollouts a prompt of 512 tokens."""
    fits = [("Qwen/Qwen2.5-0.5B-Instruct", "mc_grpo", 8), ("Qwen/Qwen2.5-1.5B-Instruct", "mc_grpo", 12)]
    for name, method, limit in [*fits, ("Qwen/Qwen3-0.6B", "grpo", 8)]:
        (check,) = [c for c in cost("gpu", name, method, memory=limit) if c.name == "memory"]
        assert check.state != "red", (name, check.found)
    (taught,) = [c for c in cost("gpu", "Qwen/Qwen3-1.7B", "tip", "Qwen/Qwen3-4B", memory=16) if c.name == "memory"]
    assert taught.state == "green"


def test_what_does_not_fit_comes_with_a_setting_that_does() -> None:
    (check,) = [c for c in cost("gpu", "Qwen/Qwen3-4B", memory=8) if c.name == "memory"]
    assert check.state == "red" and check.fix.startswith("prompts_per_step / ")
    load = Load(rows=64, micro_batch=8, completion=512)
    assert smaller("Qwen/Qwen3-4B", load, 3.2 * GB).startswith("model=Qwen/Qwen3-")
    assert smaller("Qwen/Qwen3-0.6B", load, 0.1 * GB) == ""
    assert estimate(SHAPES["Qwen/Qwen3-0.6B"], load).peak > estimate(SHAPES["Qwen/Qwen2.5-0.5B-Instruct"], load).peak


def test_a_model_that_is_no_such_decoder_is_an_error() -> None:
    with pytest.raises(ValueError, match="type 't5' is no decoder"):
        of_config(AutoConfig.for_model("t5"))


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), id="of the GPU"),
        pytest.param(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), id="of the machine"),
    ],
)
def test_running_out_of_memory_says_what_a_step_needs(build: Build, error: Exception) -> None:
    model = tiny_model()
    trainer = build(model=model, max_steps=3)

    def forward(module: Any, given: Any, out: Any) -> None:
        if trainer.state.global_step == 1:
            raise error

    model.model.layers[0].register_forward_hook(forward)
    with pytest.raises(OutOfMemory, match=r"(?s)Out of memory in step 2: .*weights.*peak .*Next smaller setting"):
        trainer.train()


def test_other_errors_stay_as_they_are(build: Build) -> None:
    def reward(completions: Any, **columns: Any) -> Any:
        raise RuntimeError("my own")

    with pytest.raises(RuntimeError, match="my own") as caught:
        build(reward=reward).train()
    assert not isinstance(caught.value, OutOfMemory)
    assert build(reward=length_reward) is not None


def test_an_estimate_reads_as_a_table() -> None:
    found: Estimate = estimate(SHAPES["Qwen/Qwen2.5-1.5B-Instruct"], Load(64, 8, 512))
    assert "cache of keys and values" in found.text() and found.text().splitlines()[-1].startswith("a step: generation")

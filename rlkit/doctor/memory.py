"""What a training step needs, worked out before it runs: bytes by part, seconds by part.

Two moments count, since what one needs is free again in the other: generation (a cache of keys and values for all
completions of a step) and update (activations, gradients and a tile of logits for one micro-batch). Weights, adapters
and optimizer are there all the time. Activations follow Korthikanti et al. (arXiv 2205.05198), without dropout masks
and without attention scores, which fused attention never stores.

What is assumed and not worked out stands in `CONTEXT`, `SLACK` and `Device`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlkit.doctor.shapes import SHAPES, Shape

GB = 1e9
NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes a parameter: 4 bits, an 8-bit scale for 64 of them, and a 32-bit scale for 256 of those."""
CONTEXT = 0.6 * GB
"""Assumed: CUDA's own share, with the kernels that torch and bitsandbytes load."""
SLACK = 0.1
"""Assumed: what an allocator cannot use, as a share of everything else."""
TILE = (4096, 32768)
"""TRL's fused head works on tiles of so many tokens x entries of the vocabulary."""
KEPT_PER_TOKEN = (12, 4)
"""Numbers that one layer keeps for its backward pass, a token: so many times the width, and the MLP's width."""
PROMPT = 256
"""Tokens of a prompt, where nobody says."""


@dataclass(frozen=True)
class Load:
    """One training step, as far as memory and time depend on it."""

    rows: int
    """Completions drawn at once by one process."""
    micro_batch: int
    """Completions in one forward and backward pass."""
    completion: int
    """Tokens, at most."""
    prompt: int = PROMPT
    quantization: str = "nf4"
    lora_r: int = 16
    checkpointing: bool = True
    number: int = 2
    """Bytes of a number in activations and in weights that are not in 4 bits: 2 for bf16, 4 for fp32."""
    passes: int = 0
    """Forward passes without gradient before the update: log-probs of the policy that drew, a reference."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], prompt: int = PROMPT) -> Load:
        """From the settings of a run (`trainer.settings`) on one process."""
        chunks = settings.get("steps_per_generation") or settings.get("gradient_accumulation_steps") or 1
        micro = int(settings["per_device_train_batch_size"])
        return cls(
            rows=micro * int(chunks),
            micro_batch=micro,
            completion=int(settings.get("max_completion_length") or 256),
            prompt=prompt,
            quantization=settings.get("quantization", "none"),
            lora_r=int(settings.get("lora_r") or 0),
            checkpointing=bool(settings.get("gradient_checkpointing", True)),
            number=2 if settings.get("bf16", True) else 4,
            passes=int(bool(settings.get("beta"))),
        )


@dataclass(frozen=True)
class Device:
    """What limits speed. Shares say how much of the peak such small kernels reach; they are assumed."""

    name: str
    bandwidth: float
    """Bytes a second."""
    flops: float
    """Floating point operations a second, in the numbers of the update."""
    share: float = 0.4
    layer_overhead: float = 1e-3
    """Seconds a layer of one decoding step takes whatever its size: starting kernels from Python."""


RTX_4090 = Device("RTX 4090 (1,008 GB/s, 165 TFLOP/s bf16 by its data sheet)", 1008e9, 165e12)


@dataclass(frozen=True)
class Estimate:
    """Bytes and seconds by part."""

    always: dict[str, float]
    """Bytes that are there all the time."""
    generation: dict[str, float]
    update: dict[str, float]
    seconds: dict[str, float]

    @property
    def peak(self) -> float:
        """Bytes of the larger moment."""
        return sum(self.always.values()) + max(sum(self.generation.values()), sum(self.update.values()))

    def rows(self) -> list[tuple[str, str, float]]:
        """(when, part, bytes)."""
        moments = (("always", self.always), ("generation", self.generation), ("update", self.update))
        return [(when, part, size) for when, parts in moments for part, size in parts.items() if size]

    def text(self) -> str:
        """One line a part, then the peak and the seconds."""
        lines = [f"{when:<11} {part:<34} {size / GB:8.3f} GB" for when, part, size in self.rows()]
        took = ", ".join(f"{part} {value:.1f} s" for part, value in self.seconds.items())
        return "\n".join([*lines, f"{'peak':<46} {self.peak / GB:8.3f} GB", f"a step: {took}"])


def estimate(shape: Shape, load: Load, teacher: Shape | None = None, device: Device = RTX_4090) -> Estimate:
    """Memory and time of one training step.

    Args:
        shape: of the policy or student.
        load: the step.
        teacher: of the teacher, for distillation.
        device: for the seconds.
    """
    always = _always(shape, load, teacher)
    tokens = load.micro_batch * (load.prompt + load.completion)
    cache = load.rows * (load.prompt + load.completion) * shape.cache_per_token * load.number
    generation = {"cache of keys and values": cache, "logits of one token": 3.0 * load.rows * shape.vocab * 4}
    trained = _trained(shape, load)
    update = {
        "gradients": trained * _adapter_number(load),
        "activations": _activations(shape, load, tokens),
        "a layer's weights, unpacked": _unpacked(shape, load),
        "tile of logits": min(tokens, TILE[0]) * min(shape.vocab, TILE[1]) * load.number * (2.0 if teacher else 1.0),
    }
    slack = SLACK * (sum(always.values()) + max(sum(generation.values()), sum(update.values())))
    always |= {"CUDA itself (assumed)": CONTEXT, f"unusable, {SLACK:.0%} (assumed)": slack}
    return Estimate(always, generation, update, _seconds(shape, load, teacher, device))


def _always(shape: Shape, load: Load, teacher: Shape | None) -> dict[str, float]:
    trained = _trained(shape, load)
    found = {"weights": _weights(shape, load)}
    if load.lora_r:
        found["adapters"] = trained * _adapter_number(load)
    found["optimizer (two moments of AdamW)"] = 2.0 * trained * _adapter_number(load)
    if teacher is not None:
        found["the teacher's weights"] = _weights(teacher, load)
    return found


def _weights(shape: Shape, load: Load) -> float:
    per = NF4 if load.quantization == "nf4" else load.number
    return shape.linear_parameters * per + shape.other_parameters * load.number


def _trained(shape: Shape, load: Load) -> int:
    everything = shape.linear_parameters + shape.other_parameters
    return shape.lora_parameters(load.lora_r) if load.lora_r else everything


def _adapter_number(load: Load) -> int:
    """Bytes of a trained number: TRL keeps adapters on 4-bit weights in bf16, PEFT others in fp32."""
    return 2 if load.quantization == "nf4" else 4


def _activations(shape: Shape, load: Load, tokens: int) -> float:
    """One layer's, and the inputs of all others with checkpointing; else those of all layers."""
    wide, mlp = KEPT_PER_TOKEN
    layer = tokens * (wide * shape.hidden + mlp * shape.intermediate) * load.number
    if not load.checkpointing:
        return float(shape.layers * layer)
    return float(layer + shape.layers * tokens * shape.hidden * load.number)


def _unpacked(shape: Shape, load: Load) -> float:
    """4-bit weights are unpacked map by map, in the forward and in the backward pass."""
    return max(a * b for a, b in shape.linears) * load.number if load.quantization == "nf4" else 0.0


def _seconds(shape: Shape, load: Load, teacher: Shape | None, device: Device) -> dict[str, float]:
    """A roofline: a decoding step reads the weights once, a pass over tokens multiplies by them."""
    parameters = shape.linear_parameters + shape.vocab * shape.hidden
    moved = 4.5 if load.quantization == "nf4" else float(load.number)  # 4 bits read, 16 written and read again
    speed = device.flops * device.share
    one = max(moved * parameters / device.bandwidth, 2 * parameters * load.rows / speed)
    drawing = load.completion * (one + shape.layers * device.layer_overhead)
    tokens = load.rows * (load.prompt + load.completion)
    forward = 2 * parameters * tokens / speed
    backward = (2 if load.lora_r else 4) * parameters * tokens / speed + (forward if load.checkpointing else 0)
    found = {"generation": drawing, "update": forward * (1 + load.passes) + backward}
    if teacher is not None:
        found["teacher"] = 2 * (teacher.linear_parameters + teacher.vocab * teacher.hidden) * tokens / speed
    return found


def smaller(model: str, load: Load, limit: float, teacher: Shape | None = None, shape: Shape | None = None) -> str:
    """The first smaller setting whose estimate is under `limit` bytes, in words; "" where there is none.

    Tried in turn: a smaller micro-batch, fewer completions at once, shorter ones, a smaller model of the family.

    Args:
        model: name or hub id, for its family.
        load: the step that is too large.
        limit: bytes.
        teacher: of the teacher, for distillation.
        shape: of the model; by default that of its name.
    """
    shape = shape or SHAPES.get(model)
    if shape is None:
        return ""
    family, largest = model.split("-")[0], shape.linear_parameters
    others = {name: its for name, its in SHAPES.items() if name.startswith(family) and its.linear_parameters < largest}
    for name, its in [("", shape), *sorted(others.items(), key=lambda item: -item[1].linear_parameters)]:
        for words, now in _variants(load, unchanged=bool(name)):
            if estimate(its, now, teacher).peak <= limit:
                return ", ".join(filter(None, (f"model={name}" if name else "", words)))
    return ""


def _variants(load: Load, unchanged: bool) -> Iterator[tuple[str, Load]]:
    """Smaller steps, and in which words."""
    if unchanged:
        yield "", load
    for times in (2, 4, 8):
        micro = max(1, load.micro_batch // times)
        yield f"gradient_accumulation_steps x {times}", dataclasses.replace(load, micro_batch=micro)
    for times in (2, 4, 8):
        rows, micro = max(1, load.rows // times), max(1, load.micro_batch // times)
        yield f"prompts_per_step / {times}", dataclasses.replace(load, rows=rows, micro_batch=micro)
    for times in (2, 4):
        shorter = max(1, load.completion // times)
        yield f"max_completion_length={shorter}", dataclasses.replace(load, completion=shorter)

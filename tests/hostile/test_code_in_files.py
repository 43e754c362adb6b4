"""Weights and data are no programs: nothing that is read runs code that came with it."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import rlkit
from rlkit import paths
from rlkit.models import load_model
from rlkit.models.loading import source_of
from rlkit.trainers.distill import DistillTrainer
from rlkit.trainers.rlvr import RLVRTrainer

SMALL: dict[str, Any] = {"prompts_per_step": 2, "num_generations": 2, "train_size": 8, "max_steps": 2}
OWN_WORKERS = {"runs/pool.py", "runs/jobs.py"}
"""A job goes to a worker of the same call through a pipe, as cloudpickle: nothing of it is ever read from a disk."""
FORBIDDEN = {"pickle", "dill", "shelve", "marshal", "cloudpickle", "joblib.load", "torch.load", "jsonpickle"}


class Payload:
    """What runs when a pickle that holds it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with the tiny base, to be tampered with."""
    folder = tmp_path / "model"
    shutil.copytree(source_of("chain"), folder)
    return folder


def test_the_payload_is_a_real_one(tmp_path: Path) -> None:
    torch.save(Payload(tmp_path / "mark"), tmp_path / "weights.bin")
    torch.load(tmp_path / "weights.bin", weights_only=False)
    assert (tmp_path / "mark").exists()


def names_used(source: str) -> set[str]:
    """Modules that a file imports and dotted names that it calls; keywords of calls as `name=value`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module.split(".")[0], *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call):
            found |= {ast.unparse(node.func), *(f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords)}
    return found


def test_no_file_of_the_package_reads_pickles() -> None:
    root = paths.source() / "rlkit"
    for file in sorted(root.rglob("*.py")):
        used = names_used(file.read_text(encoding="utf-8"))
        odd = used & (FORBIDDEN | {"allow_pickle=True", "trust_remote_code=True", "weights_only=False", "yaml.load"})
        odd -= {"cloudpickle"} if file.relative_to(root).as_posix() in OWN_WORKERS else set()
        assert not odd, f"{file}: {odd}"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("import pickle", id="import"),
        pytest.param("from pickle import loads", id="from"),
        pytest.param("torch.load('x')", id="torch"),
        pytest.param("np.load('x', allow_pickle=True)", id="numpy"),
        pytest.param("f(trust_remote_code=True)", id="remote code"),
    ],
)
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert names_used(line) & (FORBIDDEN | {"allow_pickle=True", "trust_remote_code=True"})


@pytest.mark.parametrize("where", [pytest.param("model", id="as model"), pytest.param("teacher", id="as teacher")])
def test_a_model_in_a_pickle_is_refused_and_does_not_run(base: Path, tmp_path: Path, where: str) -> None:
    (base / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Payload(tmp_path / "mark")}, base / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"(?s)safetensors.*save_pretrained"):
        load_model(base)
    task = {} if where == "model" else {"task": "planted"}
    with pytest.raises(OSError, match="safetensors"):
        rlkit.trainer("grpo" if where == "model" else "opd", preset="smoke", **task, **{where: str(base)})
    assert not (tmp_path / "mark").exists()


def test_an_adapter_in_a_pickle_is_refused_and_does_not_run(base: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    about = {"peft_type": "LORA", "base_model_name_or_path": str(base), "task_type": "CAUSAL_LM", "r": 4}
    (adapter / "adapter_config.json").write_text(json.dumps({**about, "target_modules": ["q_proj"]}), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, adapter)
    torch.save({"base_model.model.x": Payload(tmp_path / "mark")}, adapter / "adapter_model.bin")
    with pytest.raises((OSError, ValueError), match="safetensors"):
        load_model(adapter)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_that_holds_a_program_does_not_run_it(build_folder: Path, tmp_path: Path, file: str) -> None:
    checkpoint = tmp_path / "checkpoint-1"
    shutil.copytree(build_folder, checkpoint)
    torch.save(Payload(tmp_path / "mark"), checkpoint / file)
    trainer = rlkit.trainer("grpo", preset="smoke", output_dir=str(tmp_path), **SMALL)
    with pytest.raises(ValueError, match="checkpoint-1: a file there holds more than tensors"):
        trainer.train(resume_from_checkpoint=str(checkpoint))
    assert not (tmp_path / "mark").exists()


@pytest.fixture(scope="module")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after one step."""
    out = tmp_path_factory.mktemp("run")
    saving = {"save_strategy": "steps", "save_steps": 1, "output_dir": str(out)}
    rlkit.trainer("grpo", preset="smoke", **{**SMALL, **saving, "max_steps": 1}).train()
    return out / "checkpoint-1"


def test_code_that_comes_with_a_model_is_not_run(base: Path, tmp_path: Path) -> None:
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Model"}}
    (base / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (base / "own.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()\n", encoding="utf-8")
    with pytest.raises((OSError, ValueError), match="never runs code that comes with a model"):
        load_model(base)
    assert not (tmp_path / "mark").exists()


def test_asking_to_trust_remote_code_is_refused() -> None:
    for given in ({"trust_remote_code": True}, {"model_init_kwargs": {"trust_remote_code": True}}):
        with pytest.raises(ValueError, match="trust_remote_code"):
            rlkit.trainer("grpo", preset="smoke", **given)


@pytest.mark.parametrize("method", ["grpo", "opd"])
def test_arguments_of_trl_that_trust_code_are_refused(method: str, base: Path) -> None:
    from trl import DistillationConfig, GRPOConfig

    kind, config = (RLVRTrainer, GRPOConfig) if method == "grpo" else (DistillTrainer, DistillationConfig)
    for trust in ({"trust_remote_code": True}, {"model_init_kwargs": {"trust_remote_code": True}}):
        args = config("unused", use_cpu=True, bf16=False, report_to="none", **trust)
        with pytest.raises(ValueError, match="never runs code that comes with a model"):
            kind(method=method, model=str(base), args=args, train_dataset=None)


def test_no_loader_leaves_the_question_to_the_terminal() -> None:
    """Left unset, `trust_remote_code` makes transformers ask whether to run a model's code."""
    for file in sorted((paths.source() / "rlkit").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".from_pretrained"):
                said = ast.unparse(node)
                told = any(text in said for text in ("trust_remote_code=False", "**safe", "**how"))
                assert told or file.name == "smollm2.py", f"{file}: {said}"  # which reads a file that it has checked

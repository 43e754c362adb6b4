"""`rlkit train` in this process: it goes on where it was interrupted, and ends where it would have ended."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.launch.plan import Plan, save_period, saving, settings_of, value_of
from rlkit.launch.run import train
from rlkit.method import get_method

FEW = {"max_steps": 6, "save_steps": 2, "eval_every": 3, "eval_size": 8, "train_size": 64}


def plan(method: str = "grpo", **values: Any) -> Plan:
    task = "planted" if method == "tip" else None
    return Plan(method, "smoke", task=task, values={**FEW, **values})


def at(step: int, action: Callable[[], Any]) -> Callable[[str], None]:
    """What `train` is given to print with: it acts once a line about this step comes."""

    def say(text: str) -> None:
        if text.startswith(f"step {step}/"):
            action()

    return say


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def crash() -> None:
    raise RuntimeError("the machine is gone")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that nobody interrupted."""
    out = {name: tmp_path_factory.mktemp(name) for name in ("replay_uniform", "tip")}
    for name, folder in out.items():
        assert train(plan(name), folder, _quiet).finished
    return out


def _quiet(text: str) -> None:
    """Says nothing."""


@pytest.mark.parametrize("name", ["replay_uniform", "tip"])
def test_a_terminated_run_goes_on_and_ends_as_if_nothing_had_happened(
    whole: dict[str, Path], tmp_path: Path, name: str
) -> None:
    wanted, asked = whole[name], plan(name)
    stopped = train(asked, tmp_path, at(3, terminate))
    assert (stopped.finished, stopped.step, stopped.signal) == (False, 4, signal.SIGTERM)
    assert not (tmp_path / "model").exists()
    done = train(asked, tmp_path, _quiet)
    assert done.finished and done.resumed == 4
    for file in ("metrics.csv", "model/model.safetensors", "model/README.md"):
        assert (tmp_path / file).read_bytes() == (wanted / file).read_bytes(), file


def test_a_crash_costs_what_came_after_the_last_checkpoint(whole: dict[str, Path], tmp_path: Path) -> None:
    asked = plan("replay_uniform")
    with pytest.raises(RuntimeError, match="the machine is gone"):
        train(asked, tmp_path, at(3, crash))
    (tmp_path / "checkpoint-4").mkdir()  # as if it had come in the middle of saving
    done = train(asked, tmp_path, _quiet)
    assert done.resumed == 2
    for file in ("metrics.csv", "model/model.safetensors"):
        assert (tmp_path / file).read_bytes() == (whole["replay_uniform"] / file).read_bytes()


def test_what_a_finished_run_leaves(whole: dict[str, Path]) -> None:
    folder = whole["tip"]
    names = {path.name for path in (folder / "model").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= names
    assert not [path for path in (folder / "model").iterdir() if path.suffix in {".bin", ".pt", ".pth"}]
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-4", "checkpoint-6"]
    assert not (folder / "README.md").exists()
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert record["finished"] and record["arguments"]["max_steps"] == "6"
    card = (folder / "model" / "README.md").read_text(encoding="utf-8")
    rows = ["| `retention` | `0.5` | method |", "| `max_steps` | `6` | call |", "| accuracy | 6 |", "| trl |"]
    for part in ("arxiv.org/abs/2604.14084", "| `save_total_limit` | `2` | rlkit train |", "from_pretrained", *rows):
        assert part in card, part
    assert train(plan("tip"), folder, _quiet).metrics == {}  # nothing is trained again


def test_a_saved_model_answers(whole: dict[str, Path]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = whole["replay_uniform"] / "model"
    tokens = AutoTokenizer.from_pretrained(folder)("1+1", return_tensors="pt")["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.generate(tokens, max_new_tokens=2, min_new_tokens=2).size(1) == tokens.size(1) + 2


def test_other_arguments_in_the_same_folder_are_refused(whole: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"another run \(max_steps was 6, now 8; temperature was 1.0, now 0.5\)"):
        train(plan("tip", max_steps=8, temperature=0.5), whole["tip"], _quiet)
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        train(plan(), tmp_path, _quiet)


def test_adapters_are_saved_alone(tmp_path: Path) -> None:
    values = {**FEW, "max_steps": 2, "lora_r": 2, "lora_target_modules": "q_proj"}
    assert train(Plan("grpo", "smoke", values=values), tmp_path, _quiet).finished
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert "adapter_model.safetensors" in names and "model.safetensors" not in names
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "the adapter alone" in card and "PeftModel.from_pretrained" in card and "library_name: peft" in card


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_steps", "1_000", 1000), ("learning_rate", "1e-5", 1e-5), ("use_cpu", "True", True),
        ("report_to", "none", "none"), ("train_seed", "null", None),
        ("generation_kwargs", '{"top_k": 3}', {"top_k": 3}),
        ("mix", "1", 1), ("store", "all", "all"), ("delta", "1", 1.0), ("max_completion_length", "x", "x"),
    ],
    ids=lambda x: str(x) if isinstance(x, str) else "",
)  # fmt: skip
def test_values_have_the_type_of_their_setting(name: str, text: str, value: Any) -> None:
    found = value_of(name, text, get_method("replay_uniform"))
    assert found == value and type(found) is type(value)


def test_save_points_lie_between_generation_batches() -> None:
    def of(**values: Any) -> Any:
        return settings_of(Plan("grpo", "smoke", values=values))

    settings = of(max_steps=50, steps_per_generation=4, prompts_per_step=4)
    assert save_period(settings) == 4 and saving(settings)["save_steps"] == 8  # ten of them, rounded up
    assert saving(of(max_steps=50, save_steps=7)) == {
        "save_strategy": "steps",
        "save_steps": 7,
        "save_total_limit": 2,
    }
    with pytest.raises(ValueError, match="save_strategy is 'steps' here"):
        saving(of(save_strategy="epoch"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grpo", "-p", "max_step=3"], "Did you mean 'max_steps'"),
        (["grpo", "-p", "max_steps=few"], "'few' is not a valid"),
        (["grpo", "-p", "max_steps"], "-p wants name=value"),
        (["grpo", "-p", "max_steps=1", "-p", "max_steps=2"], "given twice"),
        (["gropo"], "Did you mean"),
        (["grpo", "--preset", "hug"], "There is no preset 'hug'"),
        (["grpo", "--preset", "smoke", "-p", "use_vllm=true"], "pip install 'trl[vllm]'"),
        (["grpo", "--preset", "smoke", "-p", "report_to=mlflow"], "not known here"),
    ],
    ids=["near name", "type", "no value", "twice", "method", "preset", "vllm", "tracker"],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    got = CliRunner().invoke(app, ["train", *arguments, "--out", str(tmp_path / "run")])
    assert got.exit_code != 0 and message in got.output, got.output
    assert not (tmp_path / "run" / "run.json").exists() and not list(tmp_path.glob("run/checkpoint*"))

"""Keys and passwords do not end up in executed notebooks, cards or runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import rlkit
from rlkit.cli import app
from rlkit.console import looks_secret
from rlkit.launch.plan import Plan

KEY = "hf_" + "a1B2" * 8


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("token", "x", id="token"),
        pytest.param("api_key", "x", id="api_key"),
        pytest.param("wandb_api_key", "0" * 40, id="tracker's key"),
        pytest.param("DB_PASSWORD", "x", id="upper case"),
        pytest.param("model", KEY, id="hub's token under another name"),
        pytest.param("note", f"use {KEY} here", id="inside a text"),
        pytest.param("note", "sk-" + "a1" * 12, id="sk-"),
        pytest.param("hub_token", "x", id="hub_token"),
        pytest.param("secret_key", "x", id="secret_key"),
        pytest.param("note", "wandb_v1_" + "a1" * 12, id="wandb_v1"),
        pytest.param("note", "0" * 40, id="a tracker's key alone"),
        pytest.param("note", "ghp_" + "a" * 36, id="ghp_"),
        pytest.param("note", "AKIA" + "A" * 16, id="AKIA"),
        pytest.param("notes", ["fine", KEY], id="in a list"),
    ],
)
def test_it_looks_like_a_secret(name: str, value: object) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", 12),
        ("generated_tokens", 12),
        ("token_weight", 0.5),
        ("model", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("revision", "12fd25f77366fa6b3b4b768ec3050bf629380bac"),
        ("task", "sk-learn"),
        ("run_name", "sk-learn-baseline-of-monday"),
        ("run_name", "hf_dataset_of_my_experiments"),
        ("pad_token", "<pad>"),
    ],
    ids=lambda value: str(value),
)
def test_it_does_not(name: str, value: object) -> None:
    assert not looks_secret(name, value)


def test_settings_and_plans_refuse_them() -> None:
    with pytest.raises(ValueError, match="'hub_token' looks like a secret"):
        rlkit.trainer("grpo", preset="smoke", hub_token="x")
    with pytest.raises(ValueError, match="'model' looks like a secret"):
        Plan("grpo", model=KEY)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["figures", "tour", "--preset", "smoke"], id="figures"),
        pytest.param(["train", "grpo", "--preset", "tiny"], id="train"),
    ],
)
def test_commands_refuse_secrets_before_anything_is_written(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*command, "-p", f"model={KEY}"])
    assert done.exit_code and "looks like a secret" in done.output and "environment variable" in done.output
    assert KEY not in done.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

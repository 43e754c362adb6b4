"""The card of a trained model: what it is, how it was made, how to load it. Written here, with no word from a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rlkit
from rlkit.files import write_atomic
from rlkit.launch.plan import Plan
from rlkit.runs.keys import versions
from rlkit.runs.training import Result

SHOWN = ("accuracy", "validation_accuracy", "rollout_accuracy", "reward", "loss", "generated_tokens", "trained_tokens")


def write(target: Path, trainer: Any, plan: Plan, result: Result) -> None:
    """Write README.md beside the weights, in place of what PEFT or TRL have put there."""
    write_atomic(target / "README.md", text(trainer, plan, result))


def text(trainer: Any, plan: Plan, result: Result) -> str:
    """The card in Markdown, with the front matter that hubs read."""
    method, adapter = trainer.method, hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config")
    base, revision = base_of(trainer)
    shown = [] if Path(base).exists() else [f"base_model: {base}"]
    kind = "peft" if adapter else "transformers"
    head = ["---", *shown, f"library_name: {kind}", "tags:", "- rlkit", "- trl", f"- {plan.method}", "---"]
    name = Path(base).name or base
    paper = f"[arXiv {method.paper}](https://arxiv.org/abs/{method.paper})" if method.paper else "none named"
    facts = [
        ("method", f"`{plan.method}`: {method.summary}"),
        ("paper", paper),
        ("base model", f"`{name}`" if Path(base).exists() else f"`{base}`"),
        ("revision of the base", f"`{revision}`" if revision else "not known (a local folder)"),
        ("task", f"`{getattr(trainer.task, 'name', plan.task)}`"),
        ("preset, seed", f"`{plan.preset}`, {plan.seed}"),
        ("saved", "the adapter alone; the base is needed to use it" if adapter else "all weights"),
        ("steps", str(trainer.state.global_step)),
    ]
    return "\n".join([
        *head, "", f"# {name}, trained with {plan.method}", "",
        *_table(["", ""], [[key, value] for key, value in facts]), "",
        "## Use", "", "```python", *_loading(adapter, base if adapter else ""), "```", "",
        "## Results", "", "Last logged values; `accuracy` is greedy, on test prompts.", "",
        *_table(["metric", "step", "value"], _last(result)), "",
        "## Settings", "", "Every value, and where it came from.", "",
        *_table(["setting", "value", "from"], [[f"`{n}`", f"`{_cell(v)}`", o] for n, v, o in result.settings]), "",
        "## Versions", "",
        *_table(["package", "version"], [[n, v] for n, v in {"rlkit": rlkit.__version__, **versions()}.items()]), "",
    ])  # fmt: skip


def base_of(trainer: Any) -> tuple[str, str]:
    """(name or folder, commit) of the model that training began with; no commit for a folder."""
    config = trainer.accelerator.unwrap_model(trainer.model).config
    name = str(getattr(config, "_name_or_path", "") or "a model made in memory")
    return name, str(getattr(config, "_commit_hash", None) or "")


def _loading(adapter: bool, base: str) -> list[str]:
    """Lines of Python that load what was saved."""
    if not adapter:
        return [
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            'folder = "."  # this folder',
            "model = AutoModelForCausalLM.from_pretrained(folder)",
            "tokenizer = AutoTokenizer.from_pretrained(folder)",
        ]
    return [
        "from peft import PeftModel",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'folder = "."  # this folder',
        f"base = AutoModelForCausalLM.from_pretrained({base!r})",
        "model = PeftModel.from_pretrained(base, folder)",
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
    ]


def _last(result: Result) -> list[list[str]]:
    """The last value of the metrics that a reader looks for, accuracy before training too."""
    rows = []
    for name in SHOWN:
        found = [(step, value) for step, metric, value in result.metrics if metric == name]
        ends = [found[0], found[-1]] if "accuracy" in name and len(found) > 1 else found[-1:]
        rows += [[name, str(step), f"{value:.6g}"] for step, value in ends]
    return rows


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")

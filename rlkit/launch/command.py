"""`rlkit train METHOD`. `python -m rlkit train ...` is what `accelerate launch` and `torch.distributed.run` start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlkit.console import fail, said_plainly, short

launch = typer.Typer()

Name = Annotated[str | None, typer.Option(help="By name, as in rlkit.trainer.")]
Values = Annotated[list[str] | None, typer.Option("--parameter", "-p", help="A setting, name=value; may be repeated.")]


@launch.command()
def train(
    method: Annotated[str, typer.Argument(help="A method of `rlkit list`, or two joined: mc_grpo+replay_uniform.")],
    preset: Annotated[str, typer.Option(help="tiny, small, gpu, ...: the one dial.")] = "tiny",
    seed: Annotated[int, typer.Option(min=0, help="Of sampling, prompt order and adapters.")] = 0,
    model: Name = None,
    task: Name = None,
    reward: Name = None,
    teacher: Name = None,
    parameter: Values = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; build/train/... by default.")] = None,
) -> None:
    """Train one method and keep its model. The same command again goes on where it was interrupted."""
    from rlkit import paths
    from rlkit.launch.plan import Plan, value_of
    from rlkit.method import get_method

    with said_plainly():
        known = get_method(method)
        values = {name: value_of(name, text, known) for name, text in _pairs(parameter or [])}
        named = {"model": model, "task": task, "reward": reward, "teacher": teacher}
        plan = Plan(method, preset, seed, **named, values=values)
        out = out or paths.build() / "train" / plan.name
        import datasets
        from transformers.utils import logging

        from rlkit.launch.run import is_first
        from rlkit.launch.run import train as run

        datasets.disable_progress_bars()
        logging.disable_progress_bar()

        say = typer.echo if is_first() else _silent
        outcome = run(plan, out, say)
    _report(outcome, out, say)


def _report(outcome: Any, out: Path, say: Any) -> None:
    """Where the results are. Exits with 128 + the signal where the run was interrupted."""
    if not outcome.finished:
        say(f"stopped after step {outcome.step}; the same command goes on from there")
        raise typer.Exit(128 + outcome.signal)
    done = "was done before" if not outcome.metrics else "done"
    say(f"{done}, {outcome.step} steps: model in {short(out / 'model')}, metrics in {short(out / 'metrics.csv')}")


def _silent(text: str) -> None:
    """What the other processes say."""


def _pairs(texts: list[str]) -> list[tuple[str, str]]:
    """`name=value`, each name once."""
    pairs = [(name.strip(), sign, value) for name, sign, value in (text.partition("=") for text in texts)]
    for (name, sign, _), text in zip(pairs, texts, strict=True):
        if not sign or not name.isidentifier():
            raise fail(f"-p wants name=value, not {text!r}")
        if sum(name == other for other, *_ in pairs) > 1:
            raise fail(f"-p {name} is given twice")
    return [(name, value) for name, _, value in pairs]

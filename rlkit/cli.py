"""The command `rlkit`. Whatever is heavy is imported when it is needed, so that `rlkit --help` is instant."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlkit.console import fail as _fail
from rlkit.console import said_plainly as _said_plainly
from rlkit.console import short as _short
from rlkit.course.commands import teaching
from rlkit.launch.command import launch

if TYPE_CHECKING:
    from rlkit.notebooks import Outcome

app = typer.Typer(
    name="rlkit",
    help="Post-training methods for language models, one notebook each.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cache = typer.Typer(help="The store of finished runs: where it is, its size, clear it.", no_args_is_help=False)
new = typer.Typer(help="Start something of your own.", no_args_is_help=True)
app.add_typer(cache, name="cache")
app.add_typer(new, name="new")
app.add_typer(teaching)
app.add_typer(launch)

BEGIN, END = "<!-- verdicts:begin -->", "<!-- verdicts:end -->"

Slugs = Annotated[list[str] | None, typer.Argument(help="Notebooks, by slug or number; all by default.")]
Preset = Annotated[str | None, typer.Option(help="smoke, tiny (default), full, ...: the one dial.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Seeds per arm instead of the preset's.")]
Seed = Annotated[int | None, typer.Option(min=0, help="One seed of your own, such as 17, instead of the first ones.")]
Jobs = Annotated[int, typer.Option(min=1, help="Notebooks at a time; their workers share the cores.")]
Values = Annotated[list[str] | None, typer.Option("--parameter", "-p", help="A notebook parameter, name=value.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Train again what is in the store.")]
Recorded = Annotated[bool, typer.Option("--recorded", help="Redraw the committed figures; nothing is trained.")]
Check = Annotated[bool, typer.Option("--check", help="Write only to build/; exit 1 if broken, 3 if a verdict changed.")]
Record = Annotated[bool, typer.Option("--record", help="Keep what preset small gives, to be shown elsewhere.")]
Timeout = Annotated[float | None, typer.Option(min=1, help="Seconds a notebook may take.")]


@app.callback()
def _start() -> None:
    for stream in (sys.stdout, sys.stderr):  # a Windows console that lacks a sign shows "?" instead of stopping
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


@app.command()
def figures(
    slugs: Slugs = None,
    preset: Preset = None,
    seeds: Seeds = None,
    seed: Seed = None,
    jobs: Jobs = 1,
    parameter: Values = None,
    fresh: Fresh = False,
    recorded: Recorded = False,
    check: Check = False,
    record: Record = False,
    timeout: Timeout = None,
) -> None:
    """Execute notebooks, draw their figures, and set their verdicts beside the committed ones."""
    from rlkit import notebooks, show
    from rlkit.notebooks.outputs import exit_code, write_summary

    values = _pairs(parameter or [])
    if seed is not None and seeds is not None:
        raise _fail("--seed names one seed and --seeds says how many: give one of them")
    own = None if seed is None else [seed]
    for name, value in {"preset": preset, "seeds": own or seeds}.items():
        if value is not None and values.setdefault(name, value) != value:
            raise _fail(f"--{name} and -p {name}= contradict each other")
    options = notebooks.Options(values, jobs, timeout, fresh, recorded, check, record)
    try:
        outcomes = notebooks.run_all(slugs or [], options)
    except notebooks.NotebookError as error:
        raise _fail(str(error)) from None
    except KeyboardInterrupt:
        raise _fail("interrupted; finished runs are kept, and the same command does the rest", 130) from None
    code = exit_code(outcomes, check)
    summary = write_summary(outcomes, code) if check else None  # before anything is printed to who may have gone
    if any(outcome.changes for outcome in outcomes):
        typer.echo(show.changes_text((outcome.slug, outcome.changes) for outcome in outcomes))
    for outcome in outcomes:
        _say(outcome)
    if summary:
        typer.echo(f"summary: {_short(summary)}")
    raise typer.Exit(code)


def _pairs(texts: list[str]) -> dict[str, object]:
    """`name=value` as a dictionary; types are the notebook's business."""
    values: dict[str, object] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip().isidentifier():
            raise _fail(f"-p wants name=value, not {text!r}")
        if values.setdefault(name.strip(), value) != value:
            raise _fail(f"-p {name.strip()} is given twice")
    return values


def _say(outcome: Outcome) -> None:
    """Where the results are, or what went wrong."""
    executed = outcome.executed if outcome.executed and outcome.executed.is_file() else None
    if outcome.ok and outcome.output:
        typer.echo(f"{outcome.slug}: {outcome.seconds:.0f} s, figures in {_short(outcome.output)}")
        return
    typer.echo(f"error: {outcome.message}", err=True)
    if executed:
        typer.echo(f"  the executed notebook: {_short(executed)}", err=True)


@app.command("list")
def list_methods() -> None:
    """All methods with their papers, notebooks and verdicts."""
    from rlkit.method import catalog
    from rlkit.show import catalog_text

    with _said_plainly():
        typer.echo(catalog_text(catalog()))


@app.command()
def report(
    readme: Annotated[Path | None, typer.Option(help="The file to write to; the workspace's README.md.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if it is out of date.")] = False,
) -> None:
    """Write the table of verdicts into the README, from figures/*/claims.json."""
    from rlkit import paths
    from rlkit.files import write_atomic

    with _said_plainly():
        path = readme or paths.root() / "README.md"
        old = path.read_text(encoding="utf-8")
        fresh = with_verdicts(old)
    if old == fresh:
        typer.echo(f"{_short(path)} is up to date")
    elif check:
        raise _fail(f"the table of verdicts in {_short(path)} is out of date: run `rlkit report`")
    else:
        write_atomic(path, fresh)
        typer.echo(f"{_short(path)} written")


def with_verdicts(text: str) -> str:
    """A README with the committed verdicts between its two markers.

    Raises:
        ValueError: the markers are not there, once each and in order.
    """
    from rlkit.show import verdicts_markdown

    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the README needs the lines {BEGIN} and {END}, once each and in this order")
    return f"{text[: text.index(BEGIN)]}{BEGIN}\n{verdicts_markdown()}\n{text[text.index(END) :]}"


@cache.callback(invoke_without_command=True)
def cache_size(context: typer.Context) -> None:
    """Say where the store is and how large."""
    if context.invoked_subcommand is None:
        size()


@cache.command()
def size() -> None:
    """Where the store is, how many runs it holds, and how large they are."""
    from rlkit.paths import home
    from rlkit.runs.store import Store

    runs, weight = Store(home()).size()
    typer.echo(f"{home()}: {runs} runs, {weight / 1e6:.1f} MB")


@cache.command()
def clear() -> None:
    """Remove all finished runs; a run under way in another process stays."""
    from rlkit.paths import home
    from rlkit.runs.store import Store

    with _said_plainly():
        typer.echo(f"{home()}: {Store(home()).clear()} runs removed")


@app.command()
def start(folder: Annotated[Path, typer.Argument(help="A folder of your own; it is made if it is not there.")]) -> None:
    """Copy the notebooks to a folder of your own; nothing in it is overwritten."""
    from rlkit import notebooks, paths

    with _said_plainly():
        own, given = folder / "notebooks", paths.notebooks()
        files = {path: own / path.relative_to(given) for path in notebooks.available().values()}
        there = [str(target) for target in files.values() if target.exists()]
        if there:
            raise FileExistsError(f"nothing was copied, because this would overwrite {', '.join(there)}")
        for path, target in files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        (folder / paths.MARKER).write_text("The results of rlkit go to this folder.\n", encoding="utf-8")
    typer.echo(f"{len(files)} notebooks in {own}. Next:\n  cd {folder}\n  python -m jupyterlab notebooks")


@app.command()
def site(folder: Annotated[Path | None, typer.Option(help="Where to; build/site by default.")] = None) -> None:
    """Write everything there is to read as static pages: notebooks, methods, claims, API. Nothing is executed."""
    from rlkit.site import build

    with _said_plainly():
        made = build(folder)
    typer.echo(f"{made.pages} pages, {made.size / 1e6:.1f} MB: open {_short(made.folder / 'index.html')}")


@app.command("build-bases")
def build_bases(
    names: Annotated[list[str] | None, typer.Argument(help="Bases; all by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the bases; data/bases by default.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps instead of the recipe's.")] = None,
) -> None:
    """Pretrain the tiny base models again, as their cards describe."""
    from rlkit import paths
    from rlkit.bases import RECIPES, build_base

    with _said_plainly():
        for name in names or list(RECIPES):
            folder = (out or paths.root() / "data" / "bases") / name
            losses = build_base(name, folder, steps=steps)
            typer.echo(f"{name}: {len(losses)} steps, loss {losses[0]:.3f} -> {losses[-1]:.3f} nats, in {folder}")


@app.command()
def doctor(
    task: Annotated[str | None, typer.Option(help="A task by name, such as chain or 'chain_sum(terms=3)'.")] = None,
    model: Annotated[str | None, typer.Option(help="A base by name, a folder or a hub id.")] = None,
    data: Annotated[str | None, typer.Option(help="Own data instead of a task: a file, a folder or a hub id.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Which column is what: prompt=NAME, gold=NAME.")] = None,
    machine: Annotated[bool, typer.Option("--machine", help="Check this computer.")] = False,
    preset: Annotated[str | None, typer.Option(help="Estimate memory and time of its training step.")] = None,
    method: Annotated[str, typer.Option(help="For --preset: whose batch counts.")] = "grpo",
    teacher: Annotated[str | None, typer.Option(help="For --preset with a method that distils.")] = None,
    memory: Annotated[float, typer.Option(min=0, help="For --preset: GB of the GPU; 0 for what is here.")] = 0.0,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each split that are read.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check task, model and computer before a long run; exit 1 if anything is red."""
    from rlkit.doctor import Report, columns_of, diagnose
    from rlkit.tasks.data import from_data

    if not (machine or task or data or preset):
        raise _fail("name what to check: --task, --data, --preset or --machine", 2)
    if task and data:
        raise _fail("--task and --data are two answers to one question", 2)
    import datasets

    datasets.disable_progress_bars()
    report = Report([])
    if task or data:
        with _said_plainly():
            subject = from_data(data, columns_of(column or [])) if data else str(task)
            found = diagnose(subject, model, rows=rows, progress=sys.stderr.isatty())
            report = Report([*report.checks, *found.checks])
    if preset:
        from rlkit.doctor.cost import cost

        with _said_plainly():
            report = Report([*report.checks, *cost(preset, model, method, teacher, memory)])
    if machine:
        from rlkit.doctor.machine import inspect

        report = Report([*report.checks, *inspect().checks])
    typer.echo(report.json() if as_json else report.text())
    raise typer.Exit(report.exit_code)


@new.command("method")
def new_method(name: Annotated[str, typer.Argument(help="The method's name, a Python identifier.")]) -> None:
    """Write the file, the notebook and the test of a new method; they pass the project's checks as they are."""
    from rlkit.scaffold import new_method as write

    with _said_plainly():
        for path in write(name):
            typer.echo(f"written: {path}")

"""Find notebooks, execute them, and fail closed: a run that did not leave its figures and verdicts is a failure.

Executed copies go to `build/executed/`, never over the sources. Only the preset `full` with nothing else changed, and
recorded data redrawn, write to `figures/`; everything else writes to `build/figures/PRESET/SLUG/`.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit import paths
from rlkit.files import check_writable
from rlkit.method import near
from rlkit.notebooks.kernel import OFFLINE, Job, NotebookError, execute, kill_kernels
from rlkit.notebooks.outputs import changes, claims_in, expected, publish, same_bytes, stamps, verify
from rlkit.notebooks.parameters import Parameter, ParameterError, coerce, read_parameters, tags
from rlkit.notebooks.progress import Watch
from rlkit.presets import get_preset

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from rlkit.claims import Change

__all__ = ["NotebookError", "Options", "Outcome", "arms_of", "available", "read", "resolve", "run", "run_all"]


@dataclass(frozen=True)
class Options:
    """How to run notebooks: what `rlkit figures` is told."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Notebook parameters by name; strings are turned into the types of the defaults."""
    jobs: int = 1
    """Notebooks at a time; the grid's workers share the cores."""
    timeout: float | None = None
    """Seconds a notebook."""
    fresh: bool = False
    """Train again what is in the store."""
    recorded: bool = False
    """Redraw the committed figures from `data/recorded`, without training."""
    check: bool = False
    """Write to `build/check` only."""
    record: bool = False
    """Record what a preset with a real model gives in `data/recorded/SLUG/PRESET`."""


@dataclass
class Outcome:
    """How a notebook ended."""

    slug: str
    ok: bool = False
    message: str = ""
    seconds: float = 0.0
    preset: str = ""
    executed: Path | None = None
    """The executed copy, if a kernel ran."""
    output: Path | None = None
    """The folder of its figures and claims."""
    changes: list[Change] = field(default_factory=list)
    """Its verdicts beside the committed ones."""


def available() -> dict[str, Path]:
    """All notebooks by slug: the file's name without its number.

    Raises:
        NotebookError: two files have the same slug.
    """
    found: dict[str, Path] = {}
    for path in sorted(paths.notebooks().rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts:
            continue
        slug = slug_of(path)
        if slug in found:
            raise NotebookError(f"two notebooks have the slug {slug!r}: {found[slug]} and {path}")
        found[slug] = path
    return found


def slug_of(path: Path) -> str:
    """`02_median_baseline.ipynb` is `median_baseline`."""
    return re.sub(r"^\d\d_", "", path.stem)


def resolve(name: str) -> str:
    """The slug of a notebook that is named by slug, number, file name or path.

    Raises:
        NotebookError: there is none; the message lists near ones.
    """
    known = available()
    for slug, path in known.items():
        number = path.stem[:2] if path.stem != slug else None
        if name in {slug, path.stem, number, number and number.lstrip("0")} or Path(name).stem == path.stem:
            return slug
    raise NotebookError(f"there is no notebook {name!r}. {near(name, list(known))}")


def read(slug: str) -> NotebookNode:
    """A notebook by slug.

    Raises:
        NotebookError: the file is not a notebook.
    """
    import nbformat

    path = available()[resolve(slug)]
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # nbformat raises many kinds: bad JSON, wrong version, broken schema
        raise NotebookError(f"{path} is not a valid notebook: {error}") from None
    return notebook


def arms_of(slug: str) -> list[Any]:
    """The `arms` of a notebook, without running it: only its cells tagged `parameters` and `arms` are executed.

    The cells see `rlkit` and each other.

    Raises:
        NotebookError: there is no such cell, or it leaves no list named `arms`.
    """
    import rlkit

    cells = [cell for cell in read(slug).cells if {"parameters", "arms"} & set(tags(cell))]
    space: dict[str, Any] = {"__name__": f"rlkit.notebook.{slug}", "rlkit": rlkit}
    for cell in cells:
        try:
            exec(compile(cell.source, f"<{slug}: cell tagged {' '.join(tags(cell))}>", "exec"), space)
        except Exception as error:
            raise NotebookError(f"{slug}: the cell tagged 'arms' must run on its own: {error!r}") from error
    if not isinstance(space.get("arms"), list):
        raise NotebookError(f"{slug}: no cell tagged 'arms' leaves a list named `arms`")
    return list(space["arms"])


def run_all(names: Sequence[str], options: Options) -> list[Outcome]:
    """Run notebooks (all of them if none is named), `options.jobs` at a time; one that fails does not stop the others.

    Raises:
        NotebookError: a name that is no notebook; nothing has run then.
    """
    slugs = list(dict.fromkeys(map(resolve, names))) or list(available())
    if not slugs:
        raise NotebookError(f"there are no notebooks in {paths.notebooks()}")
    if options.jobs <= 1 or len(slugs) == 1:
        return [run(slug, options) for slug in slugs]
    with ThreadPoolExecutor(options.jobs) as pool:
        tasks = [pool.submit(run, slug, options, place) for place, slug in enumerate(slugs)]
        try:
            return [task.result() for task in tasks]
        except KeyboardInterrupt:
            for task in tasks:
                task.cancel()
            kill_kernels()
            raise


def run(slug: str, options: Options, position: int = 0) -> Outcome:
    """Run one notebook; every failure ends up in the outcome's message."""
    outcome, started = Outcome(slug), time.monotonic()
    try:
        notebook = read(slug)
        committed = claims_in(paths.committed(slug))  # before the run, which may write the same file
        job, made = _prepare(slug, notebook, options, outcome)
        _execute(job, made, expected(slug, notebook, made), position)
        outcome.changes = changes(committed, claims_in(made))
        if options.check and options.recorded:
            same_bytes(made, paths.committed(slug))
        if made != outcome.output:
            publish(made, slug)
        outcome.ok = True
    except (NotebookError, ParameterError, OSError, ValueError) as error:
        outcome.message = f"{slug}: {error}"
    outcome.seconds = time.monotonic() - started
    return outcome


def _prepare(slug: str, notebook: NotebookNode, options: Options, outcome: Outcome) -> tuple[Job, Path]:
    """Find everything that is wrong before a kernel starts, and say where the run writes to.

    What replaces committed files is made beside them first: a notebook that breaks off leaves them as they were.
    """
    known = read_parameters(notebook)
    given = coerce(known, options.parameters)
    if options.recorded:
        given = _as_recorded(slug, known, given)
    outcome.preset = str(given.get("preset", known["preset"].default if "preset" in known else ""))
    real = bool(outcome.preset) and get_preset(outcome.preset).real
    if options.record and (options.check or not real or given.get("model")):
        raise NotebookError("--record keeps what a preset with a real model gives: small or gpu, with its own model")
    kind = "check" if options.check else "recorded" if options.recorded else outcome.preset or "default"
    writes = not options.check and (options.recorded or (outcome.preset == "full" and _only_preset(known, given)))
    outcome.output = paths.figures(slug) if writes else _throwaway(kind, slug)
    outcome.executed = paths.build() / "executed" / kind / f"{slug}.ipynb"
    made = paths.build() / "staged" / slug if writes else outcome.output
    for folder in (outcome.output, made, outcome.executed.parent, *([paths.recorded(slug, write=True)] * writes)):
        check_writable(folder)
    outcome.executed.unlink(missing_ok=True)
    if options.check or writes:
        shutil.rmtree(made, ignore_errors=True)
    environment = _environment(options, made, writes) | (_network(outcome.preset) if real else {})
    cells = len(notebook.cells)
    return Job(slug, available()[slug], cells, outcome.executed, given, environment, options.timeout), made


def _as_recorded(slug: str, known: Mapping[str, Parameter], given: dict[str, Any]) -> dict[str, Any]:
    """Recorded data are those of the preset `full`, whatever the notebook's default is."""
    if not paths.recorded(slug).is_dir():
        raise NotebookError(f"nothing is recorded in {paths.recorded(slug)}: run the preset full once")
    if given.get("preset", "full") != "full" or not _only_preset(known, given):
        raise NotebookError("--recorded redraws what was recorded and takes no parameters")
    return {**given, "preset": "full"} if "preset" in known else given


def _only_preset(known: Mapping[str, Parameter], given: Mapping[str, Any]) -> bool:
    return all(name == "preset" or value == known[name].default for name, value in given.items())


def _throwaway(kind: str, slug: str) -> Path:
    return paths.build() / ("check" if kind == "check" else f"figures/{kind}") / slug


def _environment(options: Options, output: Path, writes: bool) -> dict[str, str]:
    """What the notebook's `Study` is told; see `rlkit.study`."""
    from joblib import cpu_count

    environment = {"RLKIT_PROGRESS": "lines", "RLKIT_WORKERS": str(max(1, cpu_count() // max(1, options.jobs)))}
    environment |= {"RLKIT_OUTPUT": str(output)} | ({"RLKIT_WRITE": "1"} if writes else {})
    environment |= {"RLKIT_RECORDED": "1"} if options.recorded else {}
    environment |= {"RLKIT_FRESH": "1"} if options.fresh else {}
    environment |= {"RLKIT_RECORD": "1"} if options.record else {}
    return environment | ({"RLKIT_HOME": str(_check_home())} if options.check else {})


def _network(preset: str) -> dict[str, str]:
    """Who asks for a preset whose model is on the hub asks for the hub."""
    on_hub = "/" in get_preset(preset).model
    return {name: os.environ.get(name, "0") for name in OFFLINE} if on_hub else {}


def _check_home() -> Path:
    """A check writes nothing outside `build/`: the store of runs elsewhere is left alone."""
    home = paths.home()
    return home if home.is_relative_to(paths.build()) else paths.build() / "runs"


def _execute(job: Job, output: Path, wanted: set[Path], position: int) -> None:
    before = stamps(output)
    watch = Watch(job.slug, job.cells, position=position)
    try:
        execute(job, watch)
        verify(output, wanted, before)
    except BaseException:
        watch.end("failed")
        raise
    watch.end("done")

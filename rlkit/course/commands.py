"""The teacher's commands: `rlkit course`, `grade`, `pool`, `wheelhouse`. Heavy imports wait until they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlkit.console import fail, said_plainly, short

teaching = typer.Typer()
"""Its commands stand among those of `rlkit`."""

Seconds = Annotated[float, typer.Option(min=1, help="Seconds that one exercise may take.")]
Megabytes = Annotated[int, typer.Option(min=100, help="Memory that one exercise may take, beside the libraries.")]


@teaching.command()
def course(
    slugs: Annotated[list[str] | None, typer.Argument(help="Notebooks; all by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; build/course by default.")] = None,
) -> None:
    """Make student and solution notebooks, and check that solutions pass and blanks fail."""
    from rlkit import paths
    from rlkit.course.student import course as make

    folder = out or paths.build() / "course"
    with said_plainly():
        made = make(folder, slugs)
    for part in made:
        passed = sum(result.result == "passed" for result in part.results)
        typer.echo(f"{short(part.path)}: {passed} of {len(part.results)} checks pass")
    if problems := [problem for part in made for problem in part.problems]:
        raise fail("\n  ".join(problems))


@teaching.command()
def grade(
    folder: Annotated[Path, typer.Argument(help="A folder for each student, or files with their names.")],
    out: Annotated[Path | None, typer.Option(help="The table; grades.csv in the folder by default.")] = None,
    seconds: Seconds = 60,
    megabytes: Megabytes = 2000,
    jobs: Annotated[int, typer.Option(min=1, help="Notebooks at a time.")] = 1,
) -> None:
    """Say who passed which check, as CSV. Students' code runs in processes of its own, under limits."""
    from rlkit.course.checking import Limits
    from rlkit.course.grading import grade as graded
    from rlkit.course.grading import table, totals
    from rlkit.files import write_atomic

    path = out or folder / "grades.csv"
    with said_plainly():
        rows = graded(folder, Limits(seconds, megabytes), jobs, lambda text: typer.echo(text, err=True))
        write_atomic(path, table(rows))
    for line in totals(rows):
        typer.echo(line)
    typer.echo(f"table: {short(path)}")


@teaching.command()
def pool(
    files: Annotated[list[Path], typer.Argument(help="runs.csv of each student, or folders that hold some.")],
    metric: Annotated[str, typer.Option(help="What is compared.")] = "accuracy",
    at: Annotated[str, typer.Option(help="auc (mean height of the curve), last, or a step.")] = "auc",
    baseline: Annotated[str | None, typer.Option(help="The arm that others are compared with.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for figures and numbers; build/pool by default.")] = None,
) -> None:
    """Merge the runs of a class into one interval for each arm: numbers, and a figure."""
    from rlkit import paths
    from rlkit.course.pool import pooled, read, write

    with said_plainly():
        runs, notes = read(files, metric, baseline)
        table, values = pooled(runs, metric, int(at) if at.lstrip("-").isdigit() else at)
        written = write(out or paths.build() / "pool", runs, metric, table, values)
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo(table.to_string())
    typer.echo(f"written: {', '.join(short(path) for path in written)}")


@teaching.command()
def wheelhouse(
    folder: Annotated[Path, typer.Argument(help="A folder for the packages; it is made if it is not there.")],
    torch_index: Annotated[str, typer.Option(envvar="TORCH_INDEX", help="Another index to take torch from.")] = "",
) -> None:
    """Collect everything that an installation needs, for machines of this kind without a network."""
    from rlkit.course.wheelhouse import fill, how_to_install

    with said_plainly():
        size = fill(folder, torch_index)
    typer.echo(f"{size / 1e6:.0f} MB in {folder}. On a machine without a network:\n  {how_to_install(folder)}")

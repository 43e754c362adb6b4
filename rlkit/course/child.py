"""What a grader's process does: `python -m rlkit.course.child JOB.json`. It executes code that somebody else wrote.

The parent (`rlkit.course.checking`) limits its time and its memory. After each exercise a line is added to the results
file, so that what is known survives the end of this process. Code that sets out to forge a result can: it runs beside
the checks. Read what looks odd.
"""

from __future__ import annotations

import json
import linecache
import sys
import traceback
from pathlib import Path
from typing import Any


def main(job: Path) -> None:
    """Check the exercises of a job: a file with `results`, `megabytes`, and `slices`, name to sources."""
    import torch  # noqa: F401  (what it takes does not count for the limit)

    import rlkit
    import rlkit.exercises as exercises

    told = json.loads(job.read_text(encoding="utf-8"))
    found: dict[str, exercises.Outcome] = {}
    check = exercises.check

    def recording(name: str, function: Any) -> exercises.Outcome:
        found[name] = check(name, function)
        return found[name]

    rlkit.check = exercises.check = recording
    limit(told["megabytes"])
    with Path(told["results"]).open("a", encoding="utf-8") as results:
        for name, cells in told["slices"].items():
            _say(results, name=name, state="started")
            error = run(cells)
            outcome = found.get(name)
            text = outcome.text if outcome else error or "the cell ended without checking anything"
            _say(results, name=name, state="passed" if outcome and outcome.passed else "failed", text=text)


def _say(results: Any, **said: str) -> None:
    results.write(json.dumps(said) + "\n")
    results.flush()


def limit(megabytes: int) -> None:
    """Let this process take so much memory beside what it has; where the system cannot, the parent watches alone."""
    try:
        import resource

        import psutil

        most = psutil.Process().memory_info().vms + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (ImportError, ValueError, OSError):
        return


def run(cells: list[str]) -> str:
    """Execute cells one after the other in a fresh namespace; what went wrong, in words, or nothing."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(cells, 1):
        file = f"<cell {number}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        try:
            exec(compile(source, file, "exec"), space)
        except SyntaxError as error:
            return f"line {error.lineno} of the cell is not Python: {error.msg}"
        except SystemExit:
            return "the cell ends the kernel"
        except BaseException as error:
            lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            at = f" in `{lines[-1].line}`" if lines and lines[-1].line else ""
            before = "" if number == len(cells) else "a cell that it needs "
            return f"{before}raised {type(error).__name__}: {str(error)[:300]}{at}"
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))

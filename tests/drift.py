"""`make drift`: does rlkit work on other releases of TRL and transformers? Each is installed and really run.

An environment of its own holds the release and what it alone needs; a `.pth` file lends it everything else, torch too.
Usage: python -m tests.drift [--write]. Ends with 1 when a release is red that the table has not as red; --write puts
the new table into CONTRIBUTING.md.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- versions:begin -->", "<!-- versions:end -->"
OLDER = ("1.12.0", "1.13.0", "1.14.2")
"""Of TRL, beside the pinned and the newest. 1.15 is left out: see `rlkit.versions.BROKEN`."""
NAMES = ("identity", "seams", "distill", "resume", "surrogate", "denominators", "batch_seam", "rollout")
TESTS = [f"tests/trainers/test_{name}.py" for name in (*NAMES, "sampler_seam", "teachers")]
"""That rlkit equals TRL, and that every seam works: about 4 minutes."""
LIMIT = 1800
"""Seconds for one release."""
MOVED = (
    (r"ImportError: cannot import name '(\w+)' from '([\w.]+)'.*", r"not importable: \2.\1"),
    (r"ModuleNotFoundError: No module named '([\w.]+)'.*", r"no module: \1"),
    (
        r"AttributeError: (?:type object |module )?'([\w.]+)'(?: object)? has no attribute '(\w+)'.*",
        r"no attribute: \1.\2",
    ),
    (r"TypeError: ([\w.]+)\(\) got an unexpected keyword argument '(\w+)'.*", r"no argument: \1(\2)"),
)


@dataclass
class Row:
    """One release of each, and what its run gave."""

    trl: str
    transformers: str
    passed: int = 0
    total: int = 0
    moved: list[str] = field(default_factory=list)
    date: str = ""

    @property
    def state(self) -> str:
        """Green when all that ran passed, and something did."""
        return "green" if self.total and self.passed == self.total and not self.moved else "red"

    def line(self) -> str:
        """Of the Markdown table."""
        cells = (self.trl, self.transformers, self.state, f"{self.passed} of {self.total}", "; ".join(self.moved))
        return f"| {' | '.join((*cells, self.date))} |"


def moved(text: str) -> str:
    """The shortest true line of a failure: its first error, with the name of what moved where it has one."""
    lines = re.findall(r"^E\s+(?:[\w.]+\.)?(\w+(?:Error|Exception)\b.*|assert .*)", text, flags=re.MULTILINE)
    first = lines[0].strip() if lines else (text.strip().splitlines() or ["no message"])[-1]
    for pattern, told in MOVED:
        if re.fullmatch(pattern, first):
            return re.sub(pattern, told, first)
    return first[:100].replace("|", "/")


def outcome(report: str) -> tuple[int, int, list[str]]:
    """Passed, run, and what moved, from pytest's JUnit XML; skipped tests count for neither."""
    passed, total, reasons = 0, 0, dict[str, None]()
    for case in ElementTree.fromstring(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        bad = [*case.findall("failure"), *case.findall("error")]
        total, passed = total + 1, passed + (not bad)
        reasons |= {moved(part.text or part.get("message", "")): None for part in bad}
    return passed, total, list(reasons)[:3]


def span(green: list[str]) -> str:
    """The range that covers the green releases and leaves out minor releases between them: they were not green."""
    minors = sorted({tuple(map(int, version.split(".")[:2])) for version in green})
    (major, low), (last, high) = minors[0], minors[-1]
    if major != last:
        raise ValueError(f"Releases of two major versions have no common range: {', '.join(green)}.")
    holes = [f"!={major}.{minor}.*" for minor in range(low, high) if (major, minor) not in minors]
    return ",".join((f">={major}.{low}", *holes, f"<{major}.{high + 1}"))


def table(rows: list[Row]) -> str:
    """All rows as Markdown."""
    head = "| TRL | transformers | state | passed | what moved | date |\n|---|---|---|---|---|---|"
    return "\n".join((head, *(row.line() for row in rows)))


def states(text: str) -> dict[tuple[str, str], str]:
    """(TRL, transformers) -> state, of a table that was written before."""
    return {
        (a, b): state for a, b, state in re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| (green|red) ", text, re.MULTILINE)
    }


def turned_red(before: str, rows: list[Row]) -> list[Row]:
    """Red rows that the table has not as red: a release that worked, or one that is new."""
    known = states(before)
    return [row for row in rows if row.state == "red" and known.get((row.trl, row.transformers)) != "red"]


def pinned(name: str) -> str:
    """The version in constraints.txt."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return re.findall(rf"^{name}==([^\s;]+)", text, re.MULTILINE)[0]


def newest(name: str) -> str:
    """The newest release on the index."""
    what = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-", name]
    found = subprocess.run([sys.executable, "-m", "pip", "install", *what], capture_output=True, text=True, check=True)
    return str(json.loads(found.stdout)["install"][0]["metadata"]["version"])


def run(row: Row, folder: Path) -> None:
    """Install the releases of a row into `folder` and run the tests there."""
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    Path(site, "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    wanted = [f"trl=={row.trl}", f"transformers=={row.transformers}", f"torch=={pinned('torch')}"]
    row.date = datetime.date.today().isoformat()
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *wanted]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        row.moved = [f"not installable: {(done.stderr.strip().splitlines() or ['pip failed'])[-1][:100]}"]
        return
    seen = "from importlib.metadata import version as v; print(v('trl'), v('transformers'))"
    found = subprocess.run([python, "-c", seen], capture_output=True, text=True, check=True).stdout.split()
    if found != [row.trl, row.transformers]:
        raise RuntimeError(f"{folder} has {found}, not TRL {row.trl} with transformers {row.transformers}.")
    report = folder / "report.xml"
    command = [python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"--junitxml={report}", *TESTS]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    try:
        subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        row.moved = [f"not done after {LIMIT} s"]
        return
    if not report.exists():
        row.moved = ["pytest did not end"]
        return
    row.passed, row.total, row.moved = outcome(report.read_text(encoding="utf-8"))


def main() -> int:
    """Run every release, print the table, and with --write put it into CONTRIBUTING.md."""
    trl, transformers = pinned("trl"), pinned("transformers")
    pairs = [(version, transformers) for version in (*OLDER, trl, newest("trl"))]
    pairs = list(dict.fromkeys([*pairs, (trl, newest("transformers"))]))
    rows = [Row(*pair) for pair in pairs]
    for row in rows:
        with tempfile.TemporaryDirectory() as folder:
            run(row, Path(folder))
        print(row.line(), flush=True)
    before = TABLE.read_text(encoding="utf-8")
    print(table(rows))
    if "--write" in sys.argv[1:]:
        head, rest = before.split(BEGIN)
        written = f"{head}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}"
        TABLE.write_text(written, encoding="utf-8", newline="\n")
    worse = turned_red(before, rows)
    for row in worse:
        print(f"red: TRL {row.trl}, transformers {row.transformers}: {'; '.join(row.moved)}", file=sys.stderr)
    return int(bool(worse))


if __name__ == "__main__":
    raise SystemExit(main())

"""What a user gets: a light import, pinned versions, commands that exist, a wheel that works without a checkout."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PINS = [Requirement(line) for line in CONSTRAINTS.splitlines() if line and not line.startswith("#")]
ISSUED = {  # the versions that the seams and the recorded runs were made with
    "torch": "2.13.0",
    "trl": "1.16.0",
    "transformers": "5.24.0",
    "peft": "0.21.2",
    "bitsandbytes": "0.50.2",
    "datasets": "5.2.0",
    "papermill": "2.7.0",
}
MEGABYTE = 1_000_000


def requirements() -> list[Requirement]:
    """Everything pyproject.toml asks for, extras included."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    return [Requirement(text) for group in groups for text in group]


def project_files() -> list[Path]:
    """Every file that is committed or would be by `git add .`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def texts() -> dict[str, str]:
    """The project's text files by name; lists of versions and licences say nothing to users and are left out."""
    found = {}
    for path in project_files():
        if path.name in {"constraints.txt", "LICENSE"}:
            continue
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Output of a command that has to succeed."""
    result = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert result.returncode == 0, f"{' '.join(map(str, command))}\n{result.stdout}\n{result.stderr}"
    return result.stdout


# Import


def test_import_is_light() -> None:
    code = """
import json, sys, time
start = time.perf_counter()
import rlkit
seconds = time.perf_counter() - start
heavy = ("torch", "trl", "transformers", "datasets", "pandas", "scipy", "matplotlib")
print(json.dumps([seconds, [name for name in heavy if name in sys.modules]]))
"""
    # The best of a few: the other tests keep the cores busy.
    measured = [json.loads(run(sys.executable, "-c", code, cwd=ROOT)) for _ in range(3)]
    assert measured[0][1] == []
    assert min(seconds for seconds, _ in measured) < 0.5


def test_version_is_the_same_everywhere() -> None:
    code = "import rlkit; print(rlkit.__version__)"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert run(sys.executable, "-c", code, cwd=ROOT).strip() == PROJECT["version"] == citation["version"]


def test_every_import_is_a_declared_dependency() -> None:
    """`rlkit/site` may use its own extra too: the command says what to install where it is missing."""
    always = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    extra = {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["site"]}
    owners = importlib.metadata.packages_distributions()
    missing = set()
    for path in (ROOT / "rlkit").rglob("*.py"):
        declared = always | (extra if path.parent.name == "site" else set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for top in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"rlkit"}:
                if not declared & {canonicalize_name(owner) for owner in owners.get(top, [top])}:
                    missing.add((path.relative_to(ROOT).as_posix(), top))
    assert not missing


# Versions


def test_constraints_pin_every_dependency_within_its_range() -> None:
    for wanted in requirements():
        pins = [pin for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
        assert pins, f"{wanted.name} is not in constraints.txt: run the command in its header"
        for pin in pins:
            version = str(pin.specifier).removeprefix("==")
            assert str(pin.specifier).startswith("=="), pin
            assert wanted.specifier.contains(version), f"{pin} is outside of {wanted}"


def test_constraints_hold_the_versions_that_runs_were_recorded_with() -> None:
    pinned = {pin.name: str(pin.specifier).removeprefix("==") for pin in PINS}
    assert {name: pinned[name] for name in ISSUED} == ISSUED


def test_constraints_fit_any_index() -> None:
    """A local version such as +cpu is not on the public index, and an address would override the user's own."""
    assert not [pin for pin in PINS if "+" in str(pin.specifier) or pin.url]
    assert "://" not in CONSTRAINTS
    assert not re.search(r"^\s*-", CONSTRAINTS, flags=re.MULTILINE), "options do not belong here"
    assert "uv pip compile pyproject.toml --universal" in CONSTRAINTS.split("\n\n")[0][:400]


def test_environment_file_installs_this_package_with_the_constraints() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert {re.split(r"[<>=]", entry)[0] for entry in plain} >= {"python", "make", "pip"}
    assert f"python{PROJECT['requires-python']}" in plain
    assert pip == ["-c constraints.txt", "-e .[dev,site,browser]"]


def test_workflows_run_the_promised_systems_and_versions() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == ["3.11", "3.13"]


# What the texts say


def test_make_targets_in_the_texts_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert targets >= {"figures", "record", "test", "test-all", "lab", "clean", "clean-all"}
    for name, text in texts().items():
        if name.endswith((".md", ".yml", ".ipynb", ".ci/run")):
            code = [*re.findall(r"`make ([a-z-]+)", text), *re.findall(r"^\s*(?:- run: )?make ([a-z-]+)", text, re.M)]
            assert set(code) <= targets, name


def test_nothing_tells_a_user_to_install_the_old_library() -> None:
    """`rlkit` in the package index is an unrelated library of 2018; ours is rlkit-lab."""
    old = PROJECT["name"].removesuffix("-lab")
    wrong = re.compile(rf"(?:pip3?|uv|pipx|poetry)\s+(?:install|add)\b[^\n`]*?(?<![\w/.-]){old}(?![\w/.-])")
    assert wrong.search(f"pip install -U {old}") and not wrong.search(f"pip install {old}-lab")
    assert not [name for name, text in texts().items() if wrong.search(text)]


def test_no_file_names_a_path_of_one_machine() -> None:
    path = re.compile(r"(?<![\w.:/}-])/(?:work|home|root|Users|opt|mnt)/\w+")
    found = {name: path.findall(text) for name, text in texts().items()}
    assert not {name: hits for name, hits in found.items() if hits}


def test_checkout_stays_small() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in project_files()}
    assert not {name: size for name, size in sizes.items() if size > 5 * MEGABYTE}
    assert sum(sizes.values()) < 60 * MEGABYTE


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built with what is installed (no download)."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ".", cwd=ROOT)
    (built,) = out.glob("rlkit_lab-*.whl")
    return built


def test_wheel_carries_what_notebooks_read_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"rlkit", "rlkit_lab"}
    expected = {"rlkit/py.typed"}
    for path in project_files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("rlkit/"):
            expected.add(name)
        elif re.match(r"data/(bases|recorded)/|notebooks/.*\.ipynb$|figures/[^/]+/claims\.json$", name):
            expected.add(f"rlkit/_data/{name.removeprefix('data/')}")
    assert {name for name in names if name.startswith("rlkit/")} == expected
    assert any(name.startswith("rlkit/_data/bases/chain/") for name in names)


@pytest.mark.slow
def test_wheel_works_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    environment, work = tmp_path / "env", tmp_path / "elsewhere"
    work.mkdir()
    venv.create(environment)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=work)
    # The libraries are those of this environment (torch is large); the .pth file of its editable rlkit is not read.
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=work).strip()
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (Path(site) / "libraries.pth").write_text("\n".join(libraries) + "\n", encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RLKIT_", "PYTHON"))}
    env |= {"RLKIT_HOME": str(tmp_path / "home")}

    imported = run(python, "-c", "import rlkit; print(rlkit.__file__)", cwd=work, env=env).strip()
    assert Path(imported).is_relative_to(environment)
    rlkit = scripts / ("rlkit.exe" if os.name == "nt" else "rlkit")
    assert "mc_grpo" in run(rlkit, "list", cwd=work, env=env)
    run(rlkit, "figures", "median_baseline", "--preset", "smoke", cwd=work, env=env)
    claims = [path for path in tmp_path.rglob("claims.json") if "_data" not in path.parts]
    assert [json.loads(path.read_text(encoding="utf-8"))["preset"] for path in claims] == ["smoke"]
    assert list(claims[0].parent.glob("*.svg"))
    run(rlkit, "start", work / "mine", cwd=work, env=env)
    assert list((work / "mine").rglob("*median_baseline.ipynb"))

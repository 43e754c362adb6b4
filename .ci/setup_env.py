"""Make or update .venv: this package, the versions of constraints.txt, and the build of torch that fits the machine.

Run by make (`make setup`), or on any system as `python .ci/setup_env.py`. It does nothing when neither pyproject.toml
nor constraints.txt changed since the last time. Only the standard library is used, in a syntax that older Pythons read,
so that they can say which Python is needed.

Which torch:
    TORCH_INDEX=URL                         from that index
    Linux without an NVIDIA driver          PyTorch's index of CPU builds if it answers, else pip's default index
    everything else                         pip's default index (PyPI: CUDA on Linux, CPU on macOS and Windows)
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "rlkit-setup.json"
CONSTRAINTS = ROOT / "constraints.txt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SUPPORTED = [(3, 13), (3, 12), (3, 11)]


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(f"rlkit setup: {text}", flush=True)


def key() -> str:
    """Hash of the files that say what is installed."""
    digest = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def recorded() -> dict:
    """What the last finished set-up wrote; empty if there was none."""
    try:
        return json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def supported_python() -> str:
    """A Python that this package supports: the running one, else a newer or older one on the PATH."""
    if sys.version_info[:2] in SUPPORTED:
        return sys.executable
    for major, minor in SUPPORTED:
        found = shutil.which(f"python{major}.{minor}")
        if found:
            return found
    version = ".".join(map(str, sys.version_info[:3]))
    raise SystemExit(
        f"rlkit needs Python 3.11, 3.12 or 3.13, this is {version}. Name one: make setup PYTHON=python3.12"
    )


def works(python: Path) -> bool:
    """Whether an environment's Python starts and has pip (not after an interrupted set-up or a system upgrade)."""
    command = [str(python), "-m", "pip", "--version"]
    return python.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def make_venv() -> None:
    """Create .venv, or create it again when its Python no longer works."""
    if works(PYTHON):
        return
    python = supported_python()
    say(f"making .venv with {python}")
    result = subprocess.run([python, "-m", "venv", "--clear", str(VENV)], check=False)
    if result.returncode:
        raise SystemExit(".venv could not be made (on Debian and Ubuntu: apt install python3-venv).")


def pip_install(*arguments: str) -> None:
    """Run pip in .venv; stop with its exit code when it fails. What was already installed stays for the next try."""
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *quiet, *arguments]
    result = subprocess.run(command, cwd=ROOT, check=False)
    if result.returncode:
        say("pip failed; its message is above. The same command again goes on where it stopped.")
        raise SystemExit(result.returncode)


def answers(url: str, seconds: float = 5.0) -> bool:
    """Whether a web address answers soon."""
    try:
        with urllib.request.urlopen(url, timeout=seconds):
            return True
    except (OSError, ValueError):
        return False


def torch_index() -> str:
    """The index to take torch from; empty for pip's own."""
    asked = os.environ.get("TORCH_INDEX", "").strip()
    if asked or not sys.platform.startswith("linux") or shutil.which("nvidia-smi"):
        return asked
    if answers(f"{CPU_INDEX}/torch/"):
        return CPU_INDEX
    say(f"no NVIDIA driver, and {CPU_INDEX} does not answer: torch comes from the default index.")
    say("PyPI's build for Linux brings CUDA (2.7 GB); TORCH_INDEX=URL names an index with CPU builds.")
    return ""


def installed_torch() -> str:
    """Version of torch in .venv, with its build (such as 2.13.0+cpu) where the file names one; empty without torch."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    result = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def pinned_torch() -> str:
    """The version of torch in constraints.txt."""
    pin = re.search(r"^torch==([^\s;]+)", CONSTRAINTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if pin is None:
        raise SystemExit("constraints.txt has no line torch==...")
    return pin.group(1)


def install_torch(index: str, replace: bool) -> None:
    """Install torch alone, from `index`; what it needs comes with the rest, from pip's default index."""
    say(f"installing torch {pinned_torch()} from {index or 'the default index'}")
    source = ["--index-url", index] if index else []
    again = ["--force-reinstall"] if replace else []
    pip_install("--no-deps", *again, *source, f"torch=={pinned_torch()}")


def main() -> None:
    """Bring .venv up to date, or return at once when it is."""
    last = recorded()
    asked = os.environ.get("TORCH_INDEX", "").strip()
    replace = bool(asked and last and asked != last.get("torch_index"))
    if last.get("key") == key() and not replace and PYTHON.exists():
        return
    say("an update, since what it is made from changed" if last else "the first one takes a few minutes")
    make_venv()
    STAMP.unlink(missing_ok=True)
    index = asked or last.get("torch_index", "")
    if replace or installed_torch().split("+")[0] != pinned_torch():
        index = index or torch_index()
        install_torch(index, replace)
    pip_install("--constraint", str(CONSTRAINTS), "--editable", ".[dev,site,browser]")
    STAMP.write_text(json.dumps({"key": key(), "torch_index": index}), encoding="utf-8")
    say(f"done, with torch {installed_torch()}")


if __name__ == "__main__":
    main()

"""Which source files a module runs: its own and, in turn, those that it imports, as far as they are not installed ones.

Files of rlkit always count; an installed package counts by its version.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = "rlkit"
_SHOWN = {f"rlkit.steps.{name}" for name in ("view", "text", "marks", "style")}
NOT_RUN = frozenset({PACKAGE, "rlkit.presets", "rlkit.paths", "rlkit.show", "rlkit.plots", "rlkit.cli", *_SHOWN})
"""Modules whose text changes no number: what presets say is hashed by value, the others draw, find files or print."""

_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib", "platstdlib")]
_SITES = {"site-packages", "dist-packages"}
_FROZEN: dict[Path, bytes] | None = None


def _texts() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(Path(__file__).resolve().parents[1].rglob("*.py"))}


_AT_START = {path: hashlib.sha256(text).digest() for path, text in _texts().items()}
"""All of rlkit as it was when this process began to use it."""


def changed_since_start(modules: Iterable[str] | None = None) -> list[str]:
    """Files of rlkit that changed under a running process, which may have imported them before.

    Args:
        modules: look at these only; by default at all that can change a number.
    """
    now = _texts() if _FROZEN is None else _FROZEN
    named = None if modules is None else {file_of(module) for module in modules}
    quiet = {file_of(module) for module in NOT_RUN}
    looked = [path for path in _AT_START if (path in named if named is not None else path not in quiet)]
    return [path.name for path in looked if hashlib.sha256(now.get(path, b"")).digest() != _AT_START[path]]


def freeze() -> None:
    """From now on every file counts as it is at its first reading, and all of rlkit as it is now.

    A worker calls this at its start, because it runs what it has imported, whatever happens to the files later.
    """
    global _FROZEN
    if _FROZEN is None:
        _FROZEN = _texts()


def text_of(path: Path) -> bytes:
    """A source file with newlines as on Linux, so that a checkout on Windows has the same hash."""
    if _FROZEN is None:
        content = path.read_bytes()
    else:
        content = _FROZEN[path] if path in _FROZEN else _FROZEN.setdefault(path, path.read_bytes())
    return content.replace(b"\r\n", b"\n")


def file_of(module: str) -> Path | None:
    """The source file of a module of rlkit or of the user; None for an installed one, or where there is none.

    Nothing is imported for it.
    """
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded:
        return _own_file(loaded, module)
    top, *rest = module.split(".")
    for folder in _search_folders(top):
        inner = folder.joinpath(*rest)
        for path in (inner / "__init__.py", inner.with_suffix(".py")):
            if path.is_file():
                return _own_file(str(path), module)
    return None


@functools.cache
def _own_file(name: str, module: str) -> Path | None:
    path = Path(name).resolve()
    # A user's site folder, Debian's, or one added by a .pth file is none that sysconfig names.
    installed = bool(_SITES & set(path.parts)) or any(path.is_relative_to(folder) for folder in _INSTALLED)
    own = path.suffix == ".py" and (not installed or module.partition(".")[0] == PACKAGE)
    return path if own else None


@functools.cache
def _search_folders(top: str) -> tuple[Path, ...]:
    """Where a top-level module or package lies: `folder` holds `__init__.py`, or `folder.py` is beside it."""
    if top in sys.stdlib_module_names or top == "__main__":
        return ()
    if top == PACKAGE:
        return (Path(__file__).resolve().parents[1],)
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # ValueError: a module that was put together by hand has no spec
        return ()
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(Path(folder) for folder in spec.submodule_search_locations)
    return (Path(spec.origin).with_suffix(""),) if spec.origin and spec.origin.endswith(".py") else ()


def sources(*modules: str) -> dict[str, str]:
    """Hash of every source file that these modules run, by module name. Only files are read, nothing is imported.

    The modules themselves always count; of what they import, `NOT_RUN` does not.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        path = file_of(module)
        if module in found or path is None:
            continue
        text = text_of(path)
        found[module] = hashlib.sha256(text).hexdigest()[:32]
        waiting += [name for name in imports(text, module, path.name == "__init__.py") if name not in NOT_RUN]
    return dict(sorted(found.items()))


def source_digest(module: str) -> str:
    """One hash for all that `sources` finds; for an installed module its version."""
    found = sources(module)
    if not found:
        return f"{module} {package_version(module)}"
    return hashlib.sha256(repr(sorted(found.items())).encode("utf-8")).hexdigest()[:32]


@functools.lru_cache(maxsize=512)
def imports(text: bytes, module: str, is_package: bool) -> tuple[str, ...]:
    """Names of the modules that a source text imports, also inside functions; what only type checkers see is left out.

    `from package import name` gives both `package` and `package.name`, which may be a module.
    """
    found: list[str] = []
    for node in _run_nodes(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, is_package)
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(name for name in found if _may_be_local(name)))


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for other in child.orelse:
                yield other
                yield from _run_nodes(other)
            continue
        yield child
        yield from _run_nodes(child)


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _may_be_local(name: str) -> bool:
    folders = _search_folders(name.partition(".")[0]) if name else ()
    return any(_own_file(str(folder / "any.py"), name) for folder in folders)


@functools.cache
def package_version(module: str) -> str:
    """Version of the distribution that a module belongs to; Python's for the standard library, else "unknown"."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "builtins":
        return f"{sys.version_info[0]}.{sys.version_info[1]}"
    for name in (top, *importlib.metadata.packages_distributions().get(top, ())):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"

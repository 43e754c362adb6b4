"""A hash of Python values by content: equal content gives the same text in every process, anything else another one.

A function of a notebook counts by its code, defaults, closure and the globals that it reads, each in turn; one of a
source file by that file and what the file imports (`rlkit.runs.sources`). What has no content to hash raises
`Unhashable`.
"""

from __future__ import annotations

import dis
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlkit.runs.sources import file_of, package_version, source_digest

_SKIPPED_IN_CLASSES = {
    "__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__", "_abc_impl",
}  # fmt: skip
_PLAIN = (bool, int, float, complex, str, bytes)
_READS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}


class Unhashable(TypeError):
    """A value with no content that could be hashed; the message says where it is."""


def digest(value: Any, name: str = "value") -> str:
    """The hash of a value, 32 hexadecimal digits.

    Args:
        value: numbers, texts, containers, arrays, tensors, models, data sets, functions, classes, and objects that
            can be pickled.
        name: what the value is called in an error.

    Raises:
        Unhashable: an open file, a lock, a socket, a generator and the like is in it, or in what a function reads.
    """
    return _Digest().of(value, name)


def join(*parts: str) -> str:
    """The hash of a sequence of texts."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "big") + data)
    return hasher.hexdigest()[:32]


def code_reads(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """Dotted names that the code reads from its globals, as far as plain attributes follow: ("np", "median")."""
    names: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READS:
            yield from [names] if names else []
            names = (instruction.argval,)
        elif instruction.opname in {"LOAD_ATTR", "LOAD_METHOD"} and names:
            names = (*names, instruction.argval)
        elif names and instruction.opname not in {"CACHE", "PUSH_NULL", "PRECALL"}:
            yield names
            names = ()
    yield from [names] if names else []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_reads(constant)


def code_imports(code: types.CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What `import` statements inside the code ask for: (module, names taken from it)."""
    instructions = list(dis.get_instructions(code))
    for position, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            wanted = instructions[position - 1].argval
            yield instruction.argval, tuple(wanted or ())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_imports(constant)


class _Digest:
    """One walk over a value; `_open` holds what is being walked, so that a value that holds itself ends."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._done: dict[int, tuple[str, Any]] = {}

    def of(self, value: Any, path: str) -> str:
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
            value = value.item()  # numpy's scalars count as Python's
        if value is None or type(value) in _PLAIN:
            return join(type(value).__name__, value if isinstance(value, str) else repr(value))
        if id(value) in self._done:
            return self._done[id(value)][0]
        if id(value) in self._open:
            return join("cycle", str(self._open[id(value)]))
        self._open[id(value)] = len(self._open)
        try:
            found = self._compound(value, path)
        finally:
            del self._open[id(value)]
        self._done[id(value)] = (found, value)  # the value is kept alive, so that its id stays its own
        return found

    def many(self, kind: str, values: Iterable[Any], path: str) -> str:
        return join(kind, *(self.of(value, f"{path}[{i}]") for i, value in enumerate(values)))

    def pairs(self, kind: str, values: Mapping[Any, Any], path: str) -> str:
        rows = (self.of(key, path) + self.of(value, f"{path}[{key!r}]") for key, value in values.items())
        return join(kind, *sorted(rows))

    def _compound(self, value: Any, path: str) -> str:
        if type(value) in (list, tuple):
            return self.many(type(value).__name__, value, path)
        if isinstance(value, dict | types.MappingProxyType) and type(value).__module__ in {"builtins", "collections"}:
            return self.pairs("dict", value, path)
        if type(value) in (set, frozenset):
            return join("set", *sorted(self.of(item, path) for item in value))
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, type):
            return self._class(value, path)
        if isinstance(value, types.FunctionType):
            return self._function(value, path)
        if isinstance(value, types.MethodType):
            return join("method", self.of(value.__func__, path), self.of(value.__self__, f"{path}.__self__"))
        if isinstance(value, types.CodeType):
            return self._code(value, path)
        if isinstance(value, property | staticmethod | classmethod):
            inner = [value.fget, value.fset, value.fdel] if isinstance(value, property) else [value.__func__]
            return self.many(type(value).__name__, inner, path)
        return self._library(value, path) or self._object(value, path)

    # Code ------------------------------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType, path: str) -> str:
        """By its file where it can be imported by name; else by its code, and by what the code reads."""
        if importable(function):
            return join("function", source_digest(function.__module__), function.__qualname__)
        path = f"{path} > {function.__qualname__}"
        free = dict(zip(function.__code__.co_freevars, map(_cell, function.__closure__ or ()), strict=True))
        parts = [
            self._code(function.__code__, path),
            self.of(function.__defaults__, f"{path}, defaults"),
            self.of(function.__kwdefaults__, f"{path}, defaults"),
            self.pairs("closure", free, f"{path}, closure"),
        ]
        if _installed(function.__module__):  # what an installed library reads is settled by its version
            return join("installed", package_version(function.__module__), *parts)
        return join("code", *parts, self._globals(function, path), self._imports(function))

    def _code(self, code: types.CodeType, path: str) -> str:
        constants = [value for value in code.co_consts if not isinstance(value, types.CodeType)]
        nested = [value for value in code.co_consts if isinstance(value, types.CodeType)]
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_name)
        values = self.many("code", [code.co_code, code.co_exceptiontable, *names, *shape, *constants], path)
        return join(values, *(self._code(inner, path) for inner in nested))

    def _globals(self, function: types.FunctionType, path: str) -> str:
        found: dict[str, str] = {}
        for name, *attributes in code_reads(function.__code__):
            if name not in function.__globals__:
                continue  # a builtin, or a name that does not exist yet
            value, label = function.__globals__[name], name
            while attributes and isinstance(value, types.ModuleType) and hasattr(value, attributes[0]):
                value, label = getattr(value, attributes[0]), f"{label}.{attributes.pop(0)}"
            found[label] = self.of(value, f"{path}, global {label}")
        return join("globals", *(join(label, found[label]) for label in sorted(found)))

    def _imports(self, function: types.FunctionType) -> str:
        parts = []
        for name, wanted in code_imports(function.__code__):
            inner = [f"{name}.{item}" for item in wanted]
            parts += [source_digest(module) for module in (name, *(m for m in inner if file_of(m)))]
        return join("imports", *parts)

    def _class(self, kind: type, path: str) -> str:
        if importable(kind):
            return join("class", source_digest(kind.__module__), kind.__module__, kind.__qualname__)
        own = {name: value for name, value in vars(kind).items() if name not in _SKIPPED_IN_CLASSES}
        body = self.pairs("body", own, f"{path} > {kind.__qualname__}")
        return join("class of a cell", kind.__qualname__, self.many("bases", kind.__bases__, path), body)

    def _module(self, module: types.ModuleType) -> str:
        return join("module", module.__name__, source_digest(module.__name__))

    # Objects ---------------------------------------------------------------------------------------------------------

    def _library(self, value: Any, path: str) -> str | None:
        """Objects of torch, datasets and the like whose pickled form is large, or not the same every time."""
        family = type(value).__module__.partition(".")[0]
        if family == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject:
            return join("array", value.dtype.str, str(value.shape), hashlib.sha256(value.tobytes()).hexdigest())
        if hasattr(value, "state_dict") and hasattr(value, "named_parameters"):
            config = value.config.to_json_string() if hasattr(value, "config") else repr(value)
            return join("model", config, self.pairs("weights", value.state_dict(), path))
        if family == "torch" and hasattr(value, "untyped_storage"):
            flat = value.detach().cpu().contiguous()
            data = flat.view(-1).view(_bytes_type()).numpy().tobytes() if flat.numel() else b""
            return join("tensor", str(flat.dtype), str(tuple(flat.shape)), hashlib.sha256(data).hexdigest())
        if hasattr(value, "backend_tokenizer"):
            return join("tokenizer", value.backend_tokenizer.to_str(), repr(sorted(value.special_tokens_map.items())))
        if family == "datasets" and hasattr(value, "column_names") and hasattr(value, "to_dict"):
            return join("data set", self.of(value.to_dict(), path))
        if family == "pandas" and hasattr(value, "to_dict"):
            return join("pandas", type(value).__name__, self.of(value.reset_index().to_dict("list"), path))
        return None

    def _object(self, value: Any, path: str) -> str:
        """Anything else by what pickle would keep of it."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:
            raise Unhashable(f"{path} is a {type(value).__name__}, which has no content to hash ({error})") from None
        if isinstance(reduced, str):
            return self._named(value, reduced, path)
        maker, arguments, *rest = reduced
        state = [list(part) if isinstance(part, Iterator) else part for part in rest[:3]]
        return join("object", self.of(maker, path), self.of(arguments, path), self.of(state, path))

    def _named(self, value: Any, name: str, path: str) -> str:
        """An object that pickle keeps by name only: a builtin, or a function in a wrapper such as `lru_cache`."""
        if hasattr(value, "__wrapped__"):
            return join("wrapper", type(value).__qualname__, self.of(value.__wrapped__, path))
        module = getattr(value, "__module__", None) or type(value).__module__
        if module == "__main__":
            raise Unhashable(f"{path} is a {type(value).__name__} of this notebook, known only by its name")
        return join("global", module, name, source_digest(module))


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return "empty cell"


def _bytes_type() -> Any:
    import torch

    return torch.uint8


def importable(thing: Any) -> bool:
    """Whether a function or class can be imported by its name from a module that comes from a file (or is built in)."""
    found: Any = sys.modules.get(thing.__module__ or "")
    if found is None or thing.__module__ == "__main__":
        return False
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing


def _installed(module: str | None) -> bool:
    return bool(module) and module in sys.modules and module != "__main__" and file_of(str(module)) is None

"""What a method's file says about its settings: read from its source, so that no page repeats it by hand."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType

from rlkit.combine import SEAMS
from rlkit.method import Method, catalog

SENTENCE = re.compile(r"(?<=[.:;])\s+(?=[A-Z`(])")


class MethodFile:
    """One file of `rlkit/methods/`."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.doc = inspect.getdoc(module) or ""
        self.source = inspect.getsource(module)
        self.tree = ast.parse(self.source)
        self.methods = [value for value in vars(module).values() if isinstance(value, Method)]

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.module.__name__.rpartition(".")[2]

    @property
    def title(self) -> str:
        """The first line of the docstring."""
        return self.doc.partition("\n")[0].strip()

    @property
    def body(self) -> str:
        """The docstring without its first line."""
        return self.doc.partition("\n")[2].strip("\n")

    @cached_property
    def equation(self) -> str:
        """The first indented block of the docstring: the equation; empty where there is none."""
        return self.blocks[0] if self.blocks else ""

    @cached_property
    def blocks(self) -> list[str]:
        """The indented blocks of the docstring: equations, and tables of what options can be."""
        found = re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", self.body + "\n", re.MULTILINE)
        return [textwrap.dedent(block).strip("\n") for block in found]

    @cached_property
    def sentences(self) -> list[str]:
        """The prose of the file: sentences of the docstring outside of its equations."""
        blocks = [b for b in re.split(r"\n\s*\n", self.body) if not b.startswith("    ")]
        return [s for block in blocks for s in SENTENCE.split(" ".join(block.split()))]

    @cached_property
    def arguments(self) -> dict[str, str]:
        """What the docstrings of the functions say about their arguments."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                section = re.search(r"Args:\n(.*?)(?:\n\n|\Z)", ast.get_docstring(node) or "", re.DOTALL)
                lines = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE)
                found = {name: " ".join(text.split()) for name, text in lines} | found
        return found

    @cached_property
    def comments(self) -> dict[str, str]:
        """Comments behind `"name": value` on one line, by name."""
        return dict(re.findall(r'"(\w+)": [^#\n]*# *(.+?) *$', self.source, re.MULTILINE))

    def reason(self, name: str) -> str:
        """What a setting is and why it has its value; empty where nobody says anything.

        What names the setting comes first, in this file and then in those that it imports from; what only has the word
        in it comes after.
        """
        near = [self, *self.imported]
        return next(filter(None, [*(file._named(name) for file in near), *(file._loosely(name) for file in near)]), "")

    def _named(self, name: str) -> str:
        """A comment behind the value, sentences that name it as code, its row of a table, a function's argument."""
        quoted = re.compile(rf"`{name}\b|\b{name} ?=" + (rf"|\b{name}\b" if "_" in name else ""))
        sentences = [s for s in self.sentences if quoted.search(s)][:2]
        columns = [re.split(r" {2,}", line.strip()) for block in self.blocks for line in block.splitlines()]
        rows = [row[row.index(name) + 1] for row in columns if name in row[:-1]]
        beside = [cell for row in columns for cell in row if f"`{name}`" in cell]
        found = [self.comments.get(name), " ".join(sentences), *rows, self.arguments.get(name), *beside]
        return next(filter(None, found), "")

    def _loosely(self, name: str) -> str:
        """The first line of a function, a line of an equation, or a sentence with the word in it."""
        word = re.compile(rf"\b{name}(?:e?[sd])?\b")
        lines = [f"`{line.strip()}`" for block in self.blocks for line in block.splitlines()]
        return next(filter(word.search, [*self.summaries, *lines, *self.sentences]), "")

    @cached_property
    def imported(self) -> list[MethodFile]:
        """The files of other methods that this one takes something from."""
        froms = [node.module or "" for node in self.tree.body if isinstance(node, ast.ImportFrom)]
        names = [name for name in froms if name.startswith("rlkit.methods.")]
        return [MethodFile(importlib.import_module(name)) for name in names]

    @cached_property
    def summaries(self) -> list[str]:
        """The first lines of the docstrings of all functions."""
        docs = (ast.get_docstring(node) for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))
        return [doc.partition("\n")[0] for doc in docs if doc]

    @cached_property
    def metrics(self) -> dict[str, str]:
        """What the file logs: name to a sentence of the docstring about it, else the expression that is logged."""
        found: dict[str, str] = {}
        calls = [n for n in ast.walk(self.tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
        for call in calls:
            if getattr(call.func, "attr", "") in {"log", "log_value"} and len(call.args) == 2:
                name = _name(call.args[0])
                about = [s for s in self.sentences if name.split("{")[0].rstrip("/") in s and "/" in name]
                found[name] = about[0] if about else f"`{ast.unparse(call.args[1])}`"
        return found

    def functions(self, method: Method) -> Iterator[ast.FunctionDef | ast.ClassDef]:
        """The functions and classes of this file that the method runs: its hooks, and what they call, in file order."""
        own = {n.name: n for n in self.tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        todo = list(self._starts(method))
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name in own and name not in seen:
                seen.add(name)
                todo += [n.id for n in ast.walk(own[name]) if isinstance(n, ast.Name)]
        return (node for name, node in own.items() if name in seen)

    def _starts(self, method: Method) -> Iterator[str]:
        hooks = [getattr(method, seam) for seam in SEAMS if getattr(method, seam, None) is not None]
        for hook in [*hooks, *method.callbacks, *method.state]:
            owner = getattr(hook, "__self__", hook)
            yield getattr(owner, "__name__", type(owner).__name__)
            yield type(owner).__name__

    def code(self, node: ast.AST) -> str:
        """The source of a function or class."""
        return ast.get_source_segment(self.source, node) or ""


def _name(node: ast.expr) -> str:
    """The name of a metric; `bapo/{name}` for one that is put together."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return ast.unparse(node).removeprefix("f").strip("'\"")


def files() -> list[MethodFile]:
    """Every file of the catalogue, by name."""
    import pkgutil

    import rlkit.methods as package

    catalog()
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    found = [MethodFile(module) for module in modules]
    return sorted((f for f in found if f.methods), key=lambda f: f.name)

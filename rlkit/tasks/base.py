"""What a task is (`Task`), how tasks are found (`get_task`), and a user's own `datasets.Dataset` as a task.

A task holds prompts with gold answers in three splits that share no prompt, and reward functions in TRL's signature.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import inspect
import pkgutil
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlkit.method import near

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

Reward = Callable[..., Sequence[float | None]]
"""A reward function in TRL's signature: `(prompts, completions, **columns) -> one number a completion`."""

SPLITS = ("train", "validation", "test")


def text_of(completion: Any) -> str:
    """The text of a completion: a string, or a list of chat messages, of which the last one counts."""
    if isinstance(completion, str):
        return completion
    if not completion:
        return ""
    content = completion[-1].get("content")
    if isinstance(content, list):  # parts of a multimodal message
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def stable_fraction(text: str) -> float:
    """A number in [0, 1) that depends on the text only: the same on every machine and in every process."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48  # 48 bits: exact in a float, so never rounded up to 1


def split_of(text: str) -> str:
    """The split that a problem belongs to: 80 % train, 10 % validation, 10 % test, decided by its text alone."""
    fraction = stable_fraction(text)
    return "train" if fraction < 0.8 else "validation" if fraction < 0.9 else "test"


def check_split(split: str, size: int) -> None:
    """Raise ValueError unless `split` exists and `size` is a count of rows."""
    if split not in SPLITS:
        raise ValueError(f"There is no split {split!r}. {near(split, SPLITS)}")
    if size < 1:
        raise ValueError(f"A split needs at least one row, not size={size}.")


class NoSplit(ValueError):
    """A task's own data lack a split that other tasks have."""


class Task(ABC):
    """Prompts, gold answers, splits and rewards."""

    name: str
    """Name, with the options that are not at their default: `chain(terms=4)`."""
    default_reward: str = ""
    """Key of `rewards` that is used when none is asked for; empty when there is none."""

    @abstractmethod
    def dataset(self, split: str, size: int, seed: int = 0) -> Dataset:
        """Rows of a split, with columns `prompt`, `gold`, `id` and what the rewards need.

        The same arguments give the same rows; a smaller `size` gives the first rows of a larger one. Splits share no
        prompt.

        Raises:
            ValueError: unknown split, or size below 1.
        """

    @property
    def rewards(self) -> Mapping[str, Reward]:
        """Reward functions by name."""
        return {}

    @property
    def config(self) -> Mapping[str, Any]:
        """TRL options that the task wants, such as `max_completion_length`."""
        return {}

    @property
    def bases(self) -> Mapping[str, str]:
        """Tiny bases made for the task: "student", what is trained by default, and "teacher", who distils."""
        return {}

    @abstractmethod
    def correct(self, completions: Sequence[Any], gold: Sequence[str]) -> list[float]:
        """1.0 for every completion whose final answer is right, else 0.0; used to evaluate, whatever the reward."""

    def solution(self, gold: str) -> str:
        """A completion that gives this gold answer in the form that `correct` reads: to check golds before a run."""
        return gold

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class OptionTask(Task):
    """A task that is a frozen dataclass: its fields are its options."""

    kind: ClassVar[str] = ""
    """Name without options."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name, with the options that are not at their default."""
        changed = [f for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        options = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in changed)
        return f"{self.kind}({options})" if options else self.kind

    def __str__(self) -> str:
        return self.name


class DatasetTask(Task):
    """A user's own rows as a task. Columns: `prompt`, and `gold` where answers are to be compared.

    A `DatasetDict` keeps its splits (`train`, and `validation`, `test` where present). The distinct prompts of a plain
    `Dataset` are ordered by a hash; a tenth of them, at least one, go to test, as many to validation, the rest to
    train.
    `dataset` gives at most as many rows as there are.

    Raises:
        ValueError: no `prompt` column, or fewer than three distinct prompts.
    """

    def __init__(self, rows: Dataset | DatasetDict, name: str = "dataset") -> None:
        self.name = name
        self._splits: dict[str, Dataset] = dict(rows) if isinstance(rows, dict) else self._cut(rows)  # type: ignore[arg-type]
        for split, part in self._splits.items():
            if "prompt" not in part.column_names:
                raise ValueError(f"Split {split!r} has no column 'prompt', only {part.column_names}.")
        self._has_gold = all("gold" in part.column_names for part in self._splits.values())
        self.default_reward = "exact" if self._has_gold else ""

    @staticmethod
    def _cut(rows: Dataset) -> dict[str, Dataset]:
        if "prompt" not in rows.column_names:
            raise ValueError(f"The data set has no column 'prompt', only {rows.column_names}.")
        texts = [repr(prompt) for prompt in rows["prompt"]]
        order = sorted(set(texts), key=lambda t: (stable_fraction(t), t))
        if len(order) < 3:
            raise ValueError(f"Three splits need at least 3 distinct prompts; the data set has {len(order)}.")
        held = max(1, len(order) // 10)
        parts = {"test": order[:held], "validation": order[held : 2 * held], "train": order[2 * held :]}
        where = {text: split for split, part in parts.items() for text in part}
        return {s: rows.select([i for i, text in enumerate(texts) if where[text] == s]) for s in SPLITS}

    def dataset(self, split: str, size: int, seed: int = 0) -> Dataset:
        """At most `size` rows of the split, in an order drawn from `seed`."""
        check_split(split, size)
        if split not in self._splits:
            raise NoSplit(f"Task {self.name!r} has no split {split!r}, only {sorted(self._splits)}.")
        part = self._splits[split]
        order = list(range(len(part)))
        random.Random(f"{split}/{seed}").shuffle(order)
        rows = part.select(order[:size])
        if "id" not in rows.column_names:
            rows = rows.add_column("id", [f"{split}/{i}" for i in order[:size]])
        return rows

    @property
    def rewards(self) -> Mapping[str, Reward]:
        """`exact`: 1 where the completion equals the gold text, spaces at the ends left out."""
        return {"exact": self._exact} if self._has_gold else {}

    def _exact(self, completions: Sequence[Any], gold: Sequence[str], **columns: Any) -> list[float]:
        return self.correct(completions, gold)

    def correct(self, completions: Sequence[Any], gold: Sequence[str]) -> list[float]:
        """1.0 where the completion equals the gold text, spaces at the ends left out."""
        return [float(text_of(c).strip() == str(g).strip()) for c, g in zip(completions, gold, strict=True)]


def task_kinds() -> dict[str, type[OptionTask]]:
    """Every named task class in `rlkit/tasks/`."""
    import rlkit.tasks as package

    found: dict[str, type[OptionTask]] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for value in vars(module).values():
            if inspect.isclass(value) and issubclass(value, OptionTask) and value.kind:
                found[value.kind] = value
    return found


def get_task(task: str | Task | Dataset | DatasetDict, **options: Any) -> Task:
    """A task by name (`"chain"`, `"chain(terms=4)"`), a `Task` as it is, or a `Dataset` with a `prompt` column.

    Args:
        task: what names or holds the task.
        options: options of a named task, over those in the name.

    Raises:
        ValueError: unknown name or option (the message lists near ones), or an option out of its range.
        TypeError: options given for something that has none.
    """
    if isinstance(task, str):
        kind, written = _parse(task)
        return _build(kind, {**written, **options})
    if isinstance(task, OptionTask):
        return dataclasses.replace(task, **_known(type(task), options))
    if options:
        raise TypeError(f"A {type(task).__name__} takes no task options, but {sorted(options)} were given.")
    if isinstance(task, Task):
        return task
    if hasattr(task, "column_names"):
        return DatasetTask(task)
    raise TypeError(f"A task is a name, a Task or a Dataset, not {type(task).__name__}.")


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    """`"chain(terms=4)"` -> `("chain", {"terms": 4})`. Only literal values are read; nothing is evaluated."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
            return node.func.id, {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
    except (SyntaxError, ValueError):
        pass
    raise ValueError(f"Cannot read the task {text!r}. Write a name, or a name with options: 'chain(terms=4)'.")


def _known(kind: type[OptionTask], options: Mapping[str, Any]) -> dict[str, Any]:
    names = [f.name for f in dataclasses.fields(kind)]
    for name in options:
        if name not in names:
            raise ValueError(f"Task {kind.kind!r} has no option {name!r}. {near(name, names)}")
    return dict(options)


def _build(name: str, options: Mapping[str, Any]) -> Task:
    kinds = task_kinds()
    if name not in kinds:
        raise ValueError(f"There is no task {name!r}. {near(name, list(kinds))}")
    return kinds[name](**_known(kinds[name], options))

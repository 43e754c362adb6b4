"""Rows from a file, a folder or the hub, and a user's own data as a task in three lines.

task = from_data("mine.jsonl", columns={"prompt": "question", "gold": "answer"})
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.method import near
from rlkit.tasks.base import DatasetTask, Reward

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

FILES = (".jsonl", ".json", ".csv", ".parquet")


def from_data(
    source: str | Path | Dataset | DatasetDict,
    columns: Mapping[str, str] | None = None,
    *,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    instruction: str = "",
    name: str = "",
) -> AnswerTask:
    r"""Own data as a task whose answers are graded as mathematics (`rlkit.grade`).

    Args:
        source: a JSON lines, CSV or Parquet file, a folder with such files named after their splits, a data set of the
            hub by id, or a data set.
        columns: which of its columns is the `prompt` (text or chat messages) and which is the `gold` (the answer, or
            a solution that ends with `\boxed{...}` or `#### ...`). Default: columns of these names.
        split: only this split of the source, to be cut into train, validation and test; default: its own splits if it
            has several, else that cut.
        config: the hub's name for a part of the data set.
        revision: commit of the hub's repository; pin it, so that the data stay the same.
        instruction: added to every prompt that is a text, on a line of its own.
        name: what to call the task; default: the name of the source.

    Raises:
        OSError: there is no such file or data set, or no network.
        ValueError: a column is not there, a line cannot be read, or no row is left.
    """
    rows = source if hasattr(source, "column_names") else read_rows(source, split, config, revision)
    wanted = {"prompt": "prompt", "gold": "gold", **(columns or {})}
    called = name or (Path(source).stem if isinstance(source, str | Path) else "dataset")
    if isinstance(rows, dict):
        from datasets import DatasetDict

        return AnswerTask(
            DatasetDict({s: _mapped(part, wanted, instruction, f"{s} row ") for s, part in rows.items()}), called
        )
    return AnswerTask(_mapped(rows, wanted, instruction, "row "), called)


class AnswerTask(DatasetTask):
    """Rows with prompts and gold answers, graded by `rlkit.grade`."""

    def __init__(self, rows: Dataset | DatasetDict, name: str = "dataset") -> None:
        super().__init__(rows, name)
        self.default_reward = "math"

    @property
    def rewards(self) -> Mapping[str, Reward]:
        """`math`: 1 for the right answer, else 0; `exact`: 1 for the very text of the gold."""
        from rlkit.rewards import math

        return {"math": math, **super().rewards}

    def solution(self, gold: str) -> str:
        """The gold answer as a completion that marks it."""
        return f"\\boxed{{{gold}}}"

    def correct(self, completions: Sequence[Any], gold: Sequence[str]) -> list[float]:
        """1.0 for the right answer, else 0.0."""
        from rlkit.grading.grader import grade_batch

        return [float(bool(value)) for value in grade_batch(completions, gold)]


def _mapped(rows: Dataset, columns: Mapping[str, str], instruction: str, name: str) -> Dataset:
    """The same rows with `prompt`, `gold` and an `id` that counts from 1; other columns stay."""
    from rlkit.grading.grader import answer_of_gold

    for role, column in columns.items():
        if column not in rows.column_names:
            raise ValueError(
                f"There is no column {column!r} for {role!r}. {near(column, rows.column_names)} "
                f"Say which it is: columns={{{role!r}: ...}}."
            )
    if not len(rows):
        raise ValueError("The data set has no rows.")
    from datasets import Dataset

    table = {column: rows[column][:] for column in rows.column_names if column not in columns.values()}
    for role, column in columns.items():
        table[role] = list(rows[column])
    table["gold"] = [answer_of_gold(value) for value in table["gold"]]
    table.setdefault("id", [f"{name}{number}" for number in range(1, len(rows) + 1)])
    if instruction:
        table["prompt"] = [f"{p}\n{instruction}" if isinstance(p, str) else p for p in table["prompt"]]
    return Dataset.from_dict(table)


# --- reading -------------------------------------------------------------------------------------------------------


def read_rows(
    source: str | Path, split: str | None = None, config: str | None = None, revision: str | None = None
) -> Dataset | DatasetDict:
    """Rows of a file, a folder or a data set of the hub, as they are. `split=None`: all splits, if there are several.

    Raises:
        OSError: there is no such file or data set, or no network.
        ValueError: a line cannot be read, or there is no such split.
    """
    path = Path(source)
    if path.is_file():
        return _read_file(path)
    if path.is_dir():
        return _read_folder(path, split, config)
    if path.suffix in FILES:
        raise FileNotFoundError(f"There is no file {str(source)!r}.")
    return _read_hub(str(source), split, config, revision)


def _read_file(path: Path) -> Dataset:
    from datasets import Dataset

    if path.suffix == ".parquet":
        import pyarrow.parquet

        return Dataset(pyarrow.parquet.read_table(path))
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as lines:
            # Texts as they stand: a gold of 007 or 1.0 must not become a number.
            return Dataset.from_list(list(csv.DictReader(lines)))
    if path.suffix in (".jsonl", ".json"):
        return Dataset.from_list(list(_json_rows(path)))
    raise ValueError(f"{path.name}: rows are read from {', '.join(FILES)}.")


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        yield from json.loads(text)
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path.name}, line {number}: a row is an object, not {type(row).__name__}")
            yield row


def _read_folder(folder: Path, split: str | None, config: str | None) -> Dataset | DatasetDict:
    """Files named after their split, as in a copy of a hub repository: `main/train-00000-of-00001.parquet`."""
    from datasets import DatasetDict, concatenate_datasets

    below = folder / config if config and (folder / config).is_dir() else folder
    files = [path for path in sorted(below.rglob("*")) if path.suffix in FILES]
    found = {s: [p for p in files if p.name.startswith(s)] for s in ("train", "validation", "test")}
    parts = {s: concatenate_datasets([_read_file(p) for p in paths]) for s, paths in found.items() if paths}
    if split is None:
        if not parts:
            raise FileNotFoundError(f"No file in {below} is named after a split (train, validation, test).")
        return DatasetDict(parts)
    if split not in parts:
        raise ValueError(f"There is no split {split!r} in {below}, only {sorted(parts)}.")
    return parts[split]


def _read_hub(name: str, split: str | None, config: str | None, revision: str | None) -> Dataset | DatasetDict:
    from datasets import load_dataset

    try:
        rows = load_dataset(name, config, split=split, revision=revision)
    except (OSError, ImportError) as error:  # no network, or no such data set
        raise OSError(
            f"Cannot read the data set {name!r} from the hub, and no file or folder has that name. With a network "
            f"it is fetched once and then kept; a copy in a folder works too. Without either, the task 'gsm_symbolic' "
            f"makes word problems on this machine.\n{error}"
        ) from error
    return next(iter(rows.values())) if isinstance(rows, dict) and len(rows) == 1 else rows

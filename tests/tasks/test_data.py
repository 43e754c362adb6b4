"""Own data in three lines."""

from __future__ import annotations

import csv
import json

import pytest
from datasets import Dataset, DatasetDict

import rlkit

ROWS = [{"question": f"{i}+{i}?", "answer": f"so #### {2 * i}", "source": "me"} for i in range(40)]
COLUMNS = {"prompt": "question", "gold": "answer"}


def write(path, rows=ROWS):
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    else:
        Dataset.from_list(rows).to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_every_format_gives_the_same_task(tmp_path, suffix):
    task = rlkit.tasks.from_data(write(tmp_path / f"mine.{suffix}"), columns=COLUMNS)
    assert task.name == "mine"
    assert {s: len(task.dataset(s, 100)) for s in ("train", "validation", "test")} == {
        "train": 32,
        "validation": 4,
        "test": 4,
    }
    row = task.dataset("train", 1)[0]
    assert set(row) == {"prompt", "gold", "id", "source"}
    assert int(row["prompt"].split("+")[0]) * 2 == int(row["gold"])
    assert row["id"] == f"row {int(row['gold']) // 2 + 1}"


def test_answers_are_graded_as_mathematics(tmp_path):
    task = rlkit.tasks.from_data(write(tmp_path / "mine.csv"), columns=COLUMNS)
    assert task.correct([r"\boxed{8.0}", "8", "9"], ["8", "8", "8"]) == [1.0, 1.0, 0.0]
    assert task.rewards[task.default_reward] is rlkit.rewards.math


def test_numbers_in_a_csv_stay_as_they_are_written(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("prompt,gold\na,007\nb,1.50\nc,x\n", encoding="utf-8")
    task = rlkit.tasks.from_data(path)
    assert sorted(g for s in ("train", "validation", "test") for g in task.dataset(s, 9)["gold"]) == [
        "007",
        "1.50",
        "x",
    ]


def test_a_folder_keeps_its_splits(tmp_path):
    write(tmp_path / "train.jsonl", ROWS[:30])
    write(tmp_path / "test.jsonl", ROWS[30:])
    task = rlkit.tasks.from_data(tmp_path, columns=COLUMNS, instruction="Box it.")
    assert len(task.dataset("test", 100)) == 10
    assert task.dataset("train", 1)[0]["prompt"].endswith("?\nBox it.")


def test_data_sets_are_taken_as_they_are():
    rows = Dataset.from_list(ROWS)
    assert len(rlkit.tasks.from_data(rows, columns=COLUMNS).dataset("train", 99)) == 32
    both = DatasetDict({"train": rows.select(range(30)), "test": rows.select(range(30, 40))})
    assert len(rlkit.tasks.from_data(both, columns=COLUMNS).dataset("test", 99)) == 10


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        rlkit.tasks.from_data(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match=r"no column 'questoin' for 'prompt'\. Did you mean 'question'"):
        rlkit.tasks.from_data(write(tmp_path / "a.jsonl"), columns={"prompt": "questoin", "gold": "answer"})
    (tmp_path / "b.jsonl").write_text('{"prompt": "a"}\n{"prompt": ', encoding="utf-8")
    with pytest.raises(ValueError, match=r"b.jsonl, line 2"):
        rlkit.tasks.from_data(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_text("3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1: a row is an object, not int"):
        rlkit.tasks.from_data(tmp_path / "c.jsonl")
    with pytest.raises(ValueError, match="rows are read from"):
        rlkit.tasks.from_data(write(tmp_path / "d.csv").rename(tmp_path / "d.txt"))


def test_own_data_train_and_evaluate(tmp_path, one_thread):
    """The three lines, on the tiny base: the model cannot do it, but everything runs."""
    rows = [{"question": f"{i}+{i}?", "answer": str(2 * i)} for i in range(20)]
    task = rlkit.tasks.from_data(write(tmp_path / "mine.jsonl", rows), columns=COLUMNS)
    trainer = rlkit.trainer("grpo", task=task, preset="smoke", output_dir=str(tmp_path), max_completion_length=8)
    trainer.train()
    assert "rewards/math/mean" in trainer.state.log_history[0]

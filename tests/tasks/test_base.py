"""How tasks are found, and a user's own rows as a task."""

from __future__ import annotations

import pickle

import pytest
from datasets import Dataset, DatasetDict

from rlkit.tasks.base import SPLITS, DatasetTask, get_task, split_of, stable_fraction, text_of
from rlkit.tasks.chain import Chain


def test_text_of_reads_strings_and_messages() -> None:
    assert text_of("#1") == "#1"
    assert text_of([{"role": "assistant", "content": "#1"}]) == "#1"
    assert text_of([{"role": "assistant", "content": "no"}, {"role": "assistant", "content": "#1"}]) == "#1"
    assert (
        text_of([{"role": "assistant", "content": [{"type": "text", "text": "#"}, {"type": "text", "text": "1"}]}])
        == "#1"
    )
    assert text_of([{"role": "assistant", "content": None}]) == ""
    assert text_of([]) == ""


def test_stable_fraction_is_pinned() -> None:
    """The splits of every task hang on it, so it may never change."""
    assert stable_fraction("14-1+15") == 0.12379048131547421


def test_split_shares_are_eighty_ten_ten() -> None:
    splits = [split_of(str(i)) for i in range(10_000)]
    assert splits.count("train") == pytest.approx(8000, abs=150)
    assert splits.count("test") == pytest.approx(1000, abs=120)


def test_get_task_reads_names_and_options() -> None:
    assert get_task("chain") == Chain()
    assert get_task("chain(terms=3, high=50)") == Chain(terms=3, high=50)
    assert get_task("chain(terms=3)", high=50) == Chain(terms=3, high=50)
    assert get_task(Chain(terms=3), high=50) == Chain(terms=3, high=50)
    assert get_task("chain").name == "chain"
    assert get_task("chain(high=50, operators='-')").name == "chain(high=50, operators='-')"
    assert get_task(get_task("chain(high=50)").name) == Chain(high=50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chian", "Did you mean 'chain'"),
        ("chain(term=3)", "Did you mean 'terms'"),
        ("chain(", "Cannot read"),
        ("chain(terms=print(1))", "Cannot read"),
        ("chain(4)", "Cannot read"),
        ("", "Cannot read"),
    ],
)
def test_unknown_names_are_errors_that_list_near_ones(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_task(text)


def test_get_task_refuses_other_things() -> None:
    with pytest.raises(TypeError, match="not int"):
        get_task(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes no task options"):
        get_task(Dataset.from_dict({"prompt": ["a", "b", "c"]}), terms=3)


@pytest.mark.parametrize(
    ("split", "size", "message"), [("tests", 4, "Did you mean 'test'"), ("train", 0, "at least one row")]
)
@pytest.mark.parametrize("task", ["chain", "rows"])
def test_bad_split_or_size_is_an_error(task: str, split: str, size: int, message: str) -> None:
    rows = Dataset.from_dict({"prompt": list("abcdef")})
    with pytest.raises(ValueError, match=message):
        get_task("chain" if task == "chain" else rows).dataset(split, size)


def test_tasks_travel_to_other_processes() -> None:
    task = Chain(terms=3)
    again = pickle.loads(pickle.dumps(task))
    assert again == task
    assert pickle.dumps(task.rewards)


def test_own_rows_are_cut_into_disjoint_splits() -> None:
    prompts = [f"{i}+{i}?" for i in range(30)] + ["0+0?"]  # one prompt twice
    rows = Dataset.from_dict({"prompt": prompts, "gold": [str(2 * i) for i in range(30)] + ["0"]})
    task = get_task(rows)
    parts = {split: task.dataset(split, 100) for split in SPLITS}
    assert sum(map(len, parts.values())) == 31
    seen = [set(part["prompt"]) for part in parts.values()]
    assert len(set().union(*seen)) == sum(map(len, seen))
    assert len(seen[2]) == 3
    ids = [i for part in parts.values() for i in part["id"]]
    assert len(set(ids)) == 31
    assert task.dataset("train", 5, seed=1).to_list() == task.dataset("train", 5, seed=1).to_list()
    assert task.rewards["exact"](completions=[" 4 "], gold=["4"], prompts=["2+2?"]) == [1.0]


def test_own_splits_are_kept() -> None:
    parts = DatasetDict({"train": Dataset.from_dict({"prompt": ["a"]}), "test": Dataset.from_dict({"prompt": ["b"]})})
    task = get_task(parts)
    assert task.dataset("train", 9)["prompt"][0] == "a"
    assert task.dataset("test", 9)["prompt"][0] == "b"
    assert not task.rewards
    assert not task.default_reward
    with pytest.raises(ValueError, match="no split 'validation'"):
        task.dataset("validation", 1)


@pytest.mark.parametrize("columns", [{"question": list("abc")}, {"prompt": ["a", "a", "b"]}])
def test_own_rows_that_cannot_be_a_task_are_errors(columns: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match=r"no column 'prompt'|at least 3 distinct prompts"):
        DatasetTask(Dataset.from_dict(columns))

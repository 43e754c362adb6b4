"""GSM8K and MATH, read from small copies in the layout and with the columns of the hub's repositories."""

from __future__ import annotations

import pytest
from datasets import Dataset

from rlkit.grading import grade
from rlkit.tasks.base import SPLITS, get_task


@pytest.fixture
def gsm8k(tmp_path):
    rows = [
        {"question": f"Tom has {i} apples and buys {i}. How many?", "answer": f"{i}+{i}=<<{i}+{i}={n}>>{n}\n#### {n:,}"}
        for i, n in ((i, 2 * i) for i in range(600, 720))
    ]
    folder = tmp_path / "gsm8k" / "main"
    folder.mkdir(parents=True)
    Dataset.from_list(rows[:60]).to_parquet(folder / "train-00000-of-00002.parquet")
    Dataset.from_list(rows[60:100] + rows[:1]).to_parquet(folder / "train-00001-of-00002.parquet")
    Dataset.from_list(rows[99:]).to_parquet(folder / "test-00000-of-00001.parquet")
    return tmp_path / "gsm8k"


@pytest.fixture
def math(tmp_path):
    rows = [
        {"problem": f"What is ${i}/7$?", "level": f"Level {i % 5 + 1}" if i else "Level ?", "type": "Algebra",
         "solution": rf"It is not $\boxed{{1}}$ but $\boxed{{\frac{{{i}}}{{7}}}}$."}
        for i in range(80)
    ]  # fmt: skip
    folder = tmp_path / "math" / "data"
    folder.mkdir(parents=True)
    Dataset.from_list(rows[:60]).to_parquet(folder / "train-00000-of-00001.parquet")
    Dataset.from_list(rows[60:]).to_parquet(folder / "test-00000-of-00001.parquet")
    return tmp_path / "math"


def test_the_splits_of_gsm8k_share_no_question_and_lose_none(gsm8k):
    task = get_task("gsm8k", source=str(gsm8k))
    parts = {split: set(task.dataset(split, 1000)["prompt"]) for split in SPLITS}
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 120
    assert len(parts["test"]) == 21
    assert 2 <= len(parts["validation"]) <= 25


def test_the_rows_of_gsm8k(gsm8k):
    rows = get_task("gsm8k", source=str(gsm8k)).dataset("train", 5)
    assert set(rows.column_names) == {"prompt", "gold", "id", "difficulty"}
    assert rows[0]["prompt"].endswith(r"write the final answer in \boxed{}.")
    assert rows[0]["gold"].isdigit() and "," not in rows[0]["gold"]
    assert rows[0]["difficulty"] == 1


def test_the_rows_of_math(math):
    task = get_task("math", source=str(math))
    rows = task.dataset("train", 100)
    assert set(rows.column_names) == {"prompt", "gold", "id", "difficulty", "subject"}
    assert all(gold.startswith(r"\frac{") for gold in rows["gold"])
    assert set(rows["difficulty"]) <= {0, 1, 2, 3, 4, 5}
    assert sum(task.correct([task.solution(gold) for gold in rows["gold"]], rows["gold"])) == len(rows)


def test_seeds_change_the_order_and_size_cuts_it(gsm8k):
    task = get_task("gsm8k", source=str(gsm8k))
    first, second = task.dataset("train", 50, seed=0)["id"], task.dataset("train", 50, seed=1)["id"]
    assert first != second
    assert task.dataset("train", 10, seed=0)["id"] == first[:10]


@pytest.mark.parametrize("style", ["boxed", "hashed", "none"])
def test_a_gold_in_the_form_that_is_asked_for_is_right(gsm8k, style):
    task = get_task("gsm8k", source=str(gsm8k), style=style)
    assert grade(task.solution("1200"), "1200") == 1.0
    assert ("####" in task.dataset("test", 1)[0]["prompt"]) == (style == "hashed")


def test_an_unknown_style_names_the_known_ones():
    with pytest.raises(ValueError, match=r"no style 'box'\. Did you mean 'boxed'"):
        get_task("gsm8k", style="box")


def test_without_a_network_the_error_says_what_to_do(monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    for name in ("gsm8k", "math"):
        with pytest.raises(OSError, match=r"Cannot read the data set .* from the hub.*gsm_symbolic"):
            get_task(name).dataset("train", 2)


def test_the_revisions_are_commits():
    from rlkit.tasks.gsm8k import Gsm8k
    from rlkit.tasks.math import Math

    assert all(len(kind.commit) == 40 and set(kind.commit) <= set("0123456789abcdef") for kind in (Gsm8k, Math))

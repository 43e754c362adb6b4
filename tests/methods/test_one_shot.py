"""One-shot RLVR: scores by hand, and the traps of training on one example, tried through `trainer.train()`."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import rlkit
from rlkit.methods.grpo import standardized
from rlkit.methods.one_shot import ONE_SHOT, at_rank, copies, lim_score, ranking, variance_score
from rlkit.tasks.base import get_task
from tests.tiny import history

NAN = float("nan")
SMALL = {"prompts_per_step": 4, "num_generations": 4, "train_size": 16, "max_steps": 3, "learning_rate": 1e-4}
PLAIN = {"beta": 0.0, "entropy_coef": 0.0, "weight_decay": 0.0}
OUT_OF_REACH = "1" + "0" * 18
"""19 digits: an answer of the task `chain` has 18 at most."""


def build(folder: Path, **settings: Any) -> Any:
    from transformers.trainer_callback import PrinterCallback

    made = rlkit.trainer("one_shot", preset="smoke", output_dir=str(folder), **{**SMALL, **settings})
    made.remove_callback(PrinterCallback)
    return made


def weights(trainer: Any) -> Any:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


# Scores -------------------------------------------------------------------------------------------------------------


def test_variance_hand_computed() -> None:
    """(0, 1): both half a unit from .5; (.5, .5, 1): mean 2/3, so (1/36 + 1/36 + 1/9) / 3 = 1/18."""
    found = variance_score(torch.tensor([[0.0, 1.0, NAN], [0.5, 0.5, 1.0], [1.0, 1.0, 1.0]]))
    assert found.tolist() == pytest.approx([0.25, 1 / 18, 0.0])


def test_lim_hand_computed() -> None:
    """Means .25 and .75 leave 9/16 + 1/16 = 10/16; each example is (4/16)^2 + (4/16)^2 = 2/16 off: 1 - 2/10."""
    found = lim_score(torch.tensor([[0.0, 1.0], [0.5, 0.5]]))
    assert found.tolist() == pytest.approx([0.8, 0.8])


def test_lim_counts_only_the_epochs_that_drew_the_example() -> None:
    history = torch.tensor([[0.0, 1.0], [0.5, NAN], [NAN, NAN]])
    found = lim_score(history)  # means .25, 1
    assert found[1].item() == pytest.approx(1 - (1 / 16) / (9 / 16))
    assert found[2].isnan()
    assert lim_score(torch.ones(2, 3)).isnan().all()


def test_ranking_is_the_same_for_equal_scores_in_any_order() -> None:
    assert ranking({"b": 0.1, "a": 0.1, "c": 0.3}) == ["c", "a", "b"] == ranking({"c": 0.3, "a": 0.1, "b": 0.1})


@pytest.mark.parametrize(
    ("count", "rank", "expected"),
    [(1, "highest", "a"), (2, "highest", "ab"), (1, "medium", "c"), (2, "lowest", "de"), (1, 4, "d"), (2, 1, "ab")],
    ids=["top", "two at the top", "middle", "bottom", "fourth", "from the first on"],
)
def test_a_rank_names_neighbours(count: int, rank: Any, expected: str) -> None:
    assert at_rank(list("abcde"), count, rank) == list(expected)


@pytest.mark.parametrize(
    ("count", "rank", "words"),
    [
        (6, "highest", "6 examples are wanted and 5 have a score"),
        (2, 5, "start at 1 to 4"),
        (1, "higest", "Did you mean 'highest'"),
    ],
    ids=["too many", "behind the end", "misspelt"],
)
def test_a_rank_that_is_not_there_is_refused(count: int, rank: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        at_rank(list("abcde"), count, rank)


# Copies -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "batch", "size"), [(1, 8, 8), (2, 8, 8), (3, 8, 24), (4, 8, 8), (16, 8, 16)])
def test_copies_fill_whole_batches_each_row_as_often(rows: int, batch: int, size: int) -> None:
    made = copies([{"id": f"r{i}", "prompt": str(i)} for i in range(rows)], batch)
    assert len(made) == size and size % batch == 0
    assert [sum(row["prompt"] == str(i) for row in made) for i in range(rows)] == [size // rows] * rows
    assert len({row["id"] for row in made}) == size


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_a_set_of_that_many_examples_is_what_is_trained_on(count: int, tmp_path: Path) -> None:
    trainer = build(tmp_path, examples=count)
    expected = get_task("chain").dataset("train", count, seed=0)["prompt"]
    assert sorted(set(trainer.train_dataset["prompt"])) == sorted(expected)
    assert len(trainer.train_dataset) == max(4, count)


def test_examples_are_named_by_id_by_rank_or_as_rows(tmp_path: Path) -> None:
    pool = get_task("chain").dataset("train", 16, seed=0)
    scores = {name: float(place) for place, name in enumerate(pool["id"])}
    by_id = build(tmp_path, examples=[pool[3]["id"]])
    by_rank = build(tmp_path, examples=1, scores=scores, rank=13)  # the scores rise with the place: 15, 14, 13, ...
    as_row = build(tmp_path, examples=[pool[3]], train_size=2)
    given = build(tmp_path, examples=[pool[3]["id"]], gold="7")
    for trainer in (by_id, by_rank, as_row):
        assert set(trainer.train_dataset["prompt"]) == {pool[3]["prompt"]}
        assert set(trainer.train_dataset["gold"]) == {pool[3]["gold"]}
    assert set(given.train_dataset["gold"]) == {"7"} and set(given.train_dataset["prompt"]) == {pool[3]["prompt"]}


@pytest.mark.parametrize(
    ("examples", "words"),
    [(["train/1+1"], "No row of the data has the id 'train/1.1'.*train_seed=0"), (99, "16 rows"), ([], "names none")],
    ids=["unknown id", "too many", "none"],
)
def test_examples_that_are_not_there_are_refused(examples: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        build(tmp_path, examples=examples)


# Traps --------------------------------------------------------------------------------------------------------------


def test_each_copy_is_a_group_of_its_own(tmp_path: Path) -> None:
    """One name for all copies would make one group of 16 rollouts with one baseline."""
    trainer = build(tmp_path, reward="graded", max_steps=1, **PLAIN)
    trainer.train()
    rewards = torch.tensor(next(iter(trainer._logs["rewards"].values()))).view(4, 4)
    found = torch.tensor(list(trainer._logs["advantages"])).view(4, 4)
    assert len(set(trainer._logs["prompt"])) == 1 and len(set(trainer.train_dataset["id"])) == 4
    assert torch.allclose(found, standardized(rewards), atol=1e-5)
    assert not torch.allclose(found, standardized(rewards.view(1, 16)).view(4, 4), atol=1e-2)


def test_one_row_that_is_not_copied_is_refused_and_one_that_is_trains_every_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="TRL would train 0 steps"):
        build(tmp_path, examples=None, train_size=1)
    trainer = build(tmp_path, examples=1, train_size=1)
    trainer.train()
    assert trainer.state.global_step == 3 and len(history(trainer, "loss")) == 3


def test_a_label_out_of_reach_leaves_no_policy_gradient(tmp_path: Path, caplog: Any) -> None:
    trainer = build(tmp_path, gold=OUT_OF_REACH, **PLAIN)
    before = weights(trainer)
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert history(trainer, "grad_norm", "groups_with_advantage", "reward") == [(0.0, 0.0, 0.0)] * 3
    assert torch.equal(weights(trainer), before)
    assert "every advantage was 0" in caplog.text


def test_a_label_out_of_reach_is_training_without_a_policy_gradient(tmp_path: Path) -> None:
    """What then moves the weights is the entropy bonus, KL and weight decay: to the last bit."""
    logged, moved = [], []
    for settings in ({"gold": OUT_OF_REACH}, {"policy_gradient": False}):
        trainer = build(tmp_path, **settings)
        before = weights(trainer)
        trainer.train()
        logged.append(history(trainer, "loss", "grad_norm", "entropy", "kl"))
        moved.append(weights(trainer))
    assert logged[0] == logged[1] and torch.equal(*moved)
    assert all(norm > 0 for _, norm, *_ in logged[0]) and not torch.equal(moved[0], before)


def test_at_100_percent_there_is_no_advantage_and_the_log_says_so(tmp_path: Path, caplog: Any) -> None:
    """Drawn nearly greedily, an example that the base solves is solved by all rollouts."""
    trainer = build(tmp_path, examples=[_solved()], temperature=0.01, **PLAIN)
    before = weights(trainer)
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert history(trainer, "reward", "groups_with_advantage", "grad_norm") == [(1.0, 0.0, 0.0)] * 3
    assert "All rewards are equal within every group" in caplog.text
    assert torch.equal(weights(trainer), before)


def _solved() -> dict[str, Any]:
    """A training example that the base solves in all of 8 draws that are a little less greedy than the test's."""
    from rlkit.sampling import complete

    base = rlkit.load("chain")
    rows = base.task.dataset("train", 32).select([i for i in range(32) for _ in range(8)])
    drawn = complete(base.model, base.tokenizer, list(rows["prompt"]), max_new_tokens=32, temperature=0.1)
    right = torch.tensor(base.task.correct(drawn, rows["gold"])).view(32, 8).all(1).tolist()
    return dict(rows[8 * right.index(True)])


def test_without_reward_the_bonus_raises_the_entropy(tmp_path: Path) -> None:
    """TRL's sign: a positive coefficient encourages entropy."""
    ends = []
    for sign in (1, -1):
        trainer = build(
            tmp_path, policy_gradient=False, beta=0.0, entropy_coef=sign * 0.001, learning_rate=1e-3, max_steps=5
        )
        trainer.train()
        ends.append(history(trainer, "entropy")[-1][0])
    assert ends[0] > ends[1] > 0


def test_the_loss_has_the_papers_values_and_each_term_has_a_switch(tmp_path: Path) -> None:
    trainer = build(tmp_path)
    assert [trainer.settings[name] for name in PLAIN] == [0.001, 0.001, 0.01]
    trainer = build(tmp_path, **PLAIN, policy_gradient=False)
    before = weights(trainer)
    trainer.train()
    assert torch.equal(weights(trainer), before), "with all four off nothing trains"
    assert all(math.isfinite(value) for line in history(trainer, "loss", "grad_norm") for value in line)


def test_train_seed_gives_every_seed_the_same_rows(tmp_path: Path) -> None:
    rows = [set(build(tmp_path, seed=s, examples=None, train_seed=0).train_dataset["id"]) for s in (0, 1)]
    own = [set(build(tmp_path, seed=s, examples=None).train_dataset["id"]) for s in (0, 1)]
    assert rows[0] == rows[1] == own[0] != own[1]
    assert ONE_SHOT.options["examples"] == 1

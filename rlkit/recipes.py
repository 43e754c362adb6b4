"""What the tiny bases are pretrained on: a recipe is corpus, shape and optimiser; `rlkit.bases` follows it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlkit.method import near
from rlkit.tasks.base import split_of
from rlkit.tasks.chain import Problem, get_chain
from rlkit.tasks.planted import FILLERS, checksum_of, get_planted
from rlkit.tasks.planted import Problem as Addition

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CHARACTERS = "0123456789+-=;#?"


@dataclass(frozen=True)
class Recipe(ABC):
    """How a base is pretrained: its corpus, its shape, its optimiser."""

    characters: ClassVar[str]
    """One token each, beside the four special ones."""

    task: str
    """Problems come from the train split of this task, so that the other two stay unseen."""
    width: int = 64
    layers: int = 3
    heads: int = 4
    context: int = 128
    """Longest sequence in tokens."""

    steps: int = 2200
    batch: int = 64
    """Sequences a step."""
    learning_rate: float = 3e-3
    warmup: int = 50
    """Steps of linear warm-up; a cosine to 0 follows."""
    seed: int = 0

    @abstractmethod
    def corpus(self) -> Iterator[tuple[str, str]]:
        """Prompts and solutions without end, from the train split."""

    @abstractmethod
    def measure(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
        """What the finished base can do: numbers for its card."""

    @abstractmethod
    def card(self, name: str, measured: Mapping[str, float], parameters: int) -> str:
        """The text of the base's card."""


@dataclass(frozen=True)
class ChainRecipe(Recipe):
    """Careful and hasty solutions of chained sums."""

    characters: ClassVar[str] = CHARACTERS

    task: str = "chain(terms=4, high=15)"
    careful: tuple[float, float] = (0.1, 0.6)
    """Share of solutions that write every step, where the first number is 0 and where it is largest; linear between.

    The others are hasty guesses. A share that varies makes greedy decoding careful on some prompts, hasty on others.
    """
    slip: float = 0.08
    """Share of careful steps with a wrong total, which the following steps carry on."""
    slips: tuple[int, ...] = (-10, -2, -1, 1, 2, 10)
    """What a wrong step is off by."""
    hasty_right: float = 0.15
    """Share of hasty guesses that are right."""
    hasty_error: int = 9
    """A wrong guess is off by 1 to this much, either way."""

    def corpus(self) -> Iterator[tuple[str, str]]:
        """Problems of the train split, each with a careful trace or a guess."""
        task = get_chain(self.task)
        rng = random.Random(self.seed)
        while True:
            problem = task.draw(rng)
            if split_of(problem.text) == "train":
                yield f"{problem.text}?", self.solution(problem, task.high, rng)

    def solution(self, problem: Problem, high: int, rng: random.Random) -> str:
        """A careful trace, perhaps with slips, or a hasty guess."""
        low, up = self.careful
        if rng.random() >= low + (up - low) * problem.terms[0] / high:
            wrong = rng.random() >= self.hasty_right
            error = rng.choice((-1, 1)) * rng.randint(1, self.hasty_error)
            return f"#{problem.totals[-1] + error * wrong}"
        total, steps = problem.terms[0], []
        for operator, term in zip(problem.operators, problem.terms[1:], strict=True):
            before, total = total, total + term if operator == "+" else total - term
            if rng.random() < self.slip:
                total += rng.choice(self.slips)
            steps.append(f"{before}{operator}{term}={total}")
        return ";".join(steps) + f"#{total}"

    def measure(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
        """Shares of right and of careful answers."""
        from rlkit.basecard import evaluate

        return evaluate(model, tokenizer, get_chain(self.task))

    def card(self, name: str, measured: Mapping[str, float], parameters: int) -> str:
        """The card of a chain base."""
        from rlkit.basecard import card

        return card(name, self, dict(measured), parameters)


@dataclass(frozen=True)
class PlantedRecipe(Recipe):
    """Additions with planted roles: what the writer of the corpus knows about carries and checksums."""

    characters: ClassVar[str] = "0123456789+=" + FILLERS

    task: str = "planted"
    context: int = 64
    carried: float = 1.0
    """Probability that a digit which a carry comes into is right; else the carry is forgotten."""
    checksum: bool = True
    """Whether the checksum is right, or a random digit."""

    def corpus(self) -> Iterator[tuple[str, str]]:
        """Problems of the train split, none twice before all have come once, and what this writer makes of them."""
        rng = random.Random(self.seed)
        for problem in get_planted(self.task).problems("train", self.seed):
            yield problem.text, self.solution(problem, rng)

    def solution(self, problem: Addition, rng: random.Random) -> str:
        """A completion with random fillers."""
        pairs = zip(problem.total, problem.careless, strict=True)
        sums = [right if rng.random() < self.carried else careless for right, careless in pairs]
        check = checksum_of(sums) if self.checksum else rng.randrange(10)
        return problem.completion(sums, check, "".join(rng.choice(FILLERS) for _ in sums))

    def measure(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
        """Shares of right answers, and entropy and probability of the right token by role."""
        from rlkit.basecard_planted import evaluate

        return evaluate(model, tokenizer, get_planted(self.task))

    def card(self, name: str, measured: Mapping[str, float], parameters: int) -> str:
        """The card of a planted base."""
        from rlkit.basecard_planted import card

        return card(name, self, measured, parameters)


RECIPES: dict[str, Recipe] = {
    "chain": ChainRecipe(),
    "planted_teacher": PlantedRecipe(steps=1500),
    "planted_student": PlantedRecipe(layers=2, steps=1500, carried=0.1, checksum=False),
    "planted_collapsed": PlantedRecipe(layers=2, steps=1500, carried=0.0, checksum=False),
}


def get_recipe(name: str) -> Recipe:
    """A recipe by name; an unknown name is an error that lists the known ones."""
    if name not in RECIPES:
        raise ValueError(f"There is no base {name!r}. {near(name, list(RECIPES))}")
    return RECIPES[name]

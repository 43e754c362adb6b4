"""The card (README.md) of a planted base: what its corpus leaves out by construction, and what the base can do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlkit.tasks.planted import Planted, Problem, checked, checksum_of, digits_of, problem_of, roles

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlkit.recipes import PlantedRecipe

SHOWN = ("plain", "carry", "checksum")
"""Roles that have one right token, which is not copied."""


def evaluate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Planted, size: int = 512
) -> dict[str, float]:
    """What a base can do on `size` test problems.

    `sum` and `checked` are shares of greedy answers with a right sum, and with a right checksum too. For each of the
    roles `plain`, `carry` and `checksum`, at the positions of sampled answers: the mean probability of the right token
    (`right_ROLE`) and the mean entropy as a share of the largest possible one (`entropy_ROLE`).
    """
    import torch

    from rlkit.sampling import complete

    rows = task.dataset("test", size)
    prompts, gold = list(rows["prompt"]), list(rows["gold"])
    length = task.config["max_completion_length"]
    greedy = complete(model, tokenizer, prompts, max_new_tokens=length, greedy=True)
    drawn = complete(model, tokenizer, prompts, max_new_tokens=length)
    kept = [(p, c) for p, c in zip(prompts, drawn, strict=True) if digits_of(c, task.digits)]
    with torch.no_grad():
        logps = completion_logps(model, tokenizer, [p for p, _ in kept], [c for _, c in kept])
    entropy = -(logps.exp() * logps).sum(-1) / math.log(logps.shape[-1])
    place = [roles(prompt, logps.shape[1]) for prompt, _ in kept]
    right = torch.tensor([tokenizer(right_text(p, c), add_special_tokens=False).input_ids for p, c in kept])
    chance = logps[:, : right.shape[1]].gather(-1, right[..., None])[..., 0].exp()
    measured = {"sum": sum(task.correct(greedy, gold)) / size, "checked": sum(checked(greedy, gold)) / size}
    for role in SHOWN:
        here = torch.tensor([[name == role for name in row] for row in place])
        measured[f"right_{role}"] = chance[here[:, : right.shape[1]]].mean().item()
        measured[f"entropy_{role}"] = entropy[here].mean().item()
    return measured


def right_text(prompt: str, completion: str) -> str:
    """The completion with every digit of the sum right, and the checksum that fits the digits that were written."""
    problem = problem_of(prompt)
    written = digits_of(completion, problem.digits) or []
    return problem.completion(problem.total, checksum_of(written[:-1]), completion[2::4])


def completion_logps(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: list[str], completions: list[str]
) -> torch.Tensor:
    """(B, T, V) log-probs (nats) at each position of completions of one length, the end token's position included."""
    import torch

    whole = tokenizer([p + c for p, c in zip(prompts, completions, strict=True)]).input_ids
    start = len(tokenizer(prompts[0]).input_ids) - 1
    return torch.log_softmax(model(input_ids=torch.tensor(whole)).logits[:, start:].float(), -1)


def card(name: str, recipe: PlantedRecipe, measured: Mapping[str, float], parameters: int) -> str:
    """The text of the card: recipe and measurements filled in."""
    example = Problem(47, 85, 2)
    lines = [f"| {role} | {measured[f'right_{role}']:.3f} | {measured[f'entropy_{role}']:.3f} |" for role in SHOWN]
    return CARD.format(
        name=name,
        recipe=recipe,
        parameters=parameters / 1e6,
        rows=recipe.steps * recipe.batch,
        example=example.text,
        trace=example.solution,
        sums=_sums(recipe),
        checksum="The checksum is right." if recipe.checksum else "The checksum is a random digit.",
        meaning=_meaning(recipe),
        measured=measured,
        by_role="\n".join(lines),
    )


def _sums(recipe: PlantedRecipe) -> str:
    if recipe.carried == 1:
        return "Every digit of the sum is right."
    if recipe.carried == 0:
        return "Every carry is forgotten: a digit that a carry comes into is always wrong."
    return (
        f"A digit that a carry comes into is right with probability {recipe.carried:.2f}; else the carry is forgotten."
    )


def _meaning(recipe: PlantedRecipe) -> str:
    if recipe.carried == 1:
        return TEACHER
    return STUDENT if recipe.carried > 0 else COLLAPSED


TEACHER = """This is the teacher: it adds, and knows the checksum. It has only seen right digits, so what it says after
a wrong one of a student is its own guess."""

STUDENT = """This is the student: it is sure of itself and wrong wherever a carry comes in (the tokens that teach most,
with low entropy), and unsure and wrong at the checksum. Everything else it knows as well as the teacher. So which
tokens carry the signal is known before any training; whether a selection of tokens finds them is what is tested.
The right digit keeps some probability, so that it is drawn now and then: reverse KL has something to raise."""

COLLAPSED = """This is the student taken to the limit: where a carry comes in, the right digit has next to no
probability. The divergence from the teacher is as large as ever, but the gradient of reverse KL goes to 0 with that
probability."""

CARD = """# Base `{name}`

A character-level Llama ({recipe.width} wide, {recipe.layers} layers, {recipe.heads} heads, {parameters:.2f} M
parameters, 32-bit safetensors), pretrained from nothing on synthetic additions. No outside data went into it. It
is made for experiments in distillation on a laptop and has no other use. Licence: Apache-2.0, as the rest of the
project.

Rebuild it with `rlkit build-bases {name}`: one thread, about a minute, no network. The same machine class gives
the same weights; `curve.json` names the class that these came from, with the recipe and the losses of the first
steps.

## Corpus

{rows} sequences, problems from the train split of `{recipe.task}` in rounds. No problem of the validation or test
split occurs. `{example}` gets `{trace}`: for each digit, the last first, the two digits that are added, a filler
(one of four letters, drawn evenly), the digit of the sum; then the sum of these digits modulo 10.

- {sums}
- {checksum}

## What this makes possible by construction

{meaning}

## What it can do

On 512 test problems:

| measured | value |
|---|---|
| sum right, greedy | {measured[sum]:.3f} |
| sum and checksum right, greedy | {measured[checked]:.3f} |

At the positions of its own sampled answers (`plain`: a digit of the sum that no carry comes into; `carry`: one that a
carry comes into):

| role | probability of the right token | entropy (share of the largest) |
|---|---|---|
{by_role}
"""

"""The card (README.md) of a chain base: what its corpus makes possible by construction, and what the base can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlkit.tasks.base import Task
from rlkit.tasks.chain import Problem, get_chain

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlkit.recipes import ChainRecipe


def evaluate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task, size: int = 512, seed: int = 0
) -> dict[str, float]:
    """What a base can do on `size` test problems: shares of right and of careful answers, greedy and sampled.

    `careful_right` is the share of right answers among the sampled careful ones: the skill that lies in the base.
    `characters` is the mean length of a sampled answer.
    """
    import torch

    rows = task.dataset("test", size)
    prompts, length = list(rows["prompt"]), task.config["max_completion_length"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        greedy = complete(model, tokenizer, prompts, length, sample=False)
        drawn = complete(model, tokenizer, prompts, length, sample=True)
    right, careful = task.correct(drawn, rows["gold"]), ["=" in text for text in drawn]
    return {
        "greedy": sum(task.correct(greedy, rows["gold"])) / size,
        "sampled": sum(right) / size,
        "careful_share": sum(careful) / size,
        "careful_right": sum(r for r, c in zip(right, careful, strict=True) if c) / max(1, sum(careful)),
        "characters": sum(map(len, drawn)) / size,
    }


def complete(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: list[str], length: int, *, sample: bool
) -> list[str]:
    """Completions of at most `length` tokens: drawn at temperature 1, or greedy."""
    import torch

    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    choice = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} if sample else {"do_sample": False}
    with torch.no_grad():
        ids = model.generate(**inputs, max_new_tokens=length, **choice)
    return list(tokenizer.batch_decode(ids[:, inputs.input_ids.shape[1] :], skip_special_tokens=True))


def card(name: str, recipe: ChainRecipe, measured: dict[str, float], parameters: int) -> str:
    """The text of the card: recipe and measurements filled in."""
    task = get_chain(recipe.task)
    example = Problem((14, 1, 15), "-+")
    low, up = recipe.careful
    return CARD.format(
        name=name,
        recipe=recipe,
        task=task,
        parameters=parameters / 1e6,
        rows=recipe.steps * recipe.batch,
        example=example.text,
        trace=example.solution,
        low=low,
        up=up,
        slips=", ".join(f"{slip:+d}" for slip in recipe.slips),
        measured=measured,
    )


CARD = """# Base `{name}`

A character-level Llama ({recipe.width} wide, {recipe.layers} layers, {recipe.heads} heads, {parameters:.2f} M
parameters, 32-bit safetensors), pretrained from nothing on synthetic solutions of chained sums. No outside data
went into it. It is made for experiments in post-training on a laptop and has no other use. Licence: Apache-2.0,
as the rest of the project.

Rebuild it with `rlkit build-bases {name}`: one thread, a few minutes, no network. The same machine class gives
the same weights; `curve.json` names the class that these came from, with the recipe and the losses of the first
steps.

## Corpus

{rows} sequences, drawn one by one, of problems from the train split of `{task.name}` ({task.terms} numbers from
0 to {task.high}, added or subtracted). No problem of the validation or test split occurs.

- Careful solutions write every running total: `{example}?` gets `{trace}`. A step has a wrong total with
  probability {recipe.slip:.2f} (off by one of {slips}), and the next steps carry it on.
- Hasty guesses are `#` and a number, right with probability {recipe.hasty_right:.2f}, else off by 1 to
  {recipe.hasty_error} either way.
- The share of careful solutions rises with the first number of the problem, from {low:.2f} at 0 to {up:.2f} at
  {task.high}. So greedy decoding is careful on some prompts and hasty on others, and prompts differ in how
  often a sample is.

## What this makes possible by construction

Two ways to answer live in the base side by side under the same prompts: a careful one that mostly works and a
hasty one that mostly does not. Reinforcement can therefore raise accuracy by drawing the careful way more
often, by making fewer slips in it, and by sharpening arithmetic that is half learned. It need not discover how
to work a sum out, and a gain with this base says nothing about discovery. What is tested is how well a method
finds and uses what is there already.

## What it can do

On 512 test problems, before any reinforcement:

| measured | value |
|---|---|
| right, greedy | {measured[greedy]:.3f} |
| right, sampled at temperature 1 | {measured[sampled]:.3f} |
| careful, sampled | {measured[careful_share]:.3f} |
| right among the sampled careful ones | {measured[careful_right]:.3f} |
| characters of a sampled answer | {measured[characters]:.1f} |
"""

"""What the doctor asks of a model together with the data."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlkit.doctor.checks import Check
from rlkit.tasks.base import Task

if TYPE_CHECKING:
    from datasets import Dataset


def form_checks(task: Task, parts: dict[str, Dataset], model: Any, tokenizer: Any) -> Iterator[Check]:
    """Whether prompts are in the model's form and fit, and whether the model can end its turn."""
    from rlkit.prompts import faults, for_model, token_ids

    prompts = [prompt for part in parts.values() for prompt in part["prompt"]]
    wrong = faults(prompts, tokenizer)
    if wrong:
        yield Check("form", "red", wrong[0], "see the message")
        return
    seen = [prompt for part in parts.values() for prompt in for_model(part, tokenizer)["prompt"]]
    wrapped = sum(isinstance(a, str) and not isinstance(b, str) for a, b in zip(prompts, seen, strict=True))
    yield Check(
        "form", "green", f"{wrapped} bare texts become the user's message" if wrapped else "prompts go in as they are"
    )
    ids = token_ids(seen, tokenizer)
    starts = Counter(row.count(tokenizer.bos_token_id) for row in ids) if tokenizer.bos_token_id is not None else {0: 1}
    if max(starts) > 1 and tokenizer.bos_token_id != tokenizer.eos_token_id:
        yield Check("start token", "red", f"a prompt has {max(starts)} start tokens", "apply the chat template once")
    else:
        yield Check("start token", "green", "exactly one" if min(starts) == 1 else "none: the tokenizer adds none")
    yield _fit(task, ids, model)
    yield _stop(model, tokenizer)


def _fit(task: Task, ids: list[list[int]], model: Any) -> Check:
    context = getattr(model.config, "max_position_embeddings", None)
    longest, length = max(map(len, ids)), _completion_length(task)
    if context is None:
        return Check("length", "green", f"the longest prompt has {longest} tokens; the model names no limit")
    room = context - length
    over = sum(len(row) > room for row in ids)
    found = f"the longest prompt has {longest} tokens, and {room} are left of {context} beside {length} to be generated"
    if over:
        fix = "on_long_prompt='drop', shorter prompts, or a smaller max_completion_length"
        return Check("length", "red", f"{over} of {len(ids)} prompts do not fit: {found}", fix)
    return Check("length", "green", found)


def _completion_length(task: Task) -> int:
    from trl import GRPOConfig

    default = next(f.default for f in dataclasses.fields(GRPOConfig) if f.name == "max_completion_length")
    return int(task.config.get("max_completion_length", default))


def _stop(model: Any, tokenizer: Any) -> Check:
    from rlkit.prompts import stop_ids, turn_end

    stops, end = stop_ids(model, tokenizer), turn_end(tokenizer)
    names = ", ".join(repr(tokenizer.convert_ids_to_tokens(token)) for token in sorted(stops))
    if not stops:
        return Check("stop token", "red", "there is none, so no completion would end", "set tokenizer.eos_token")
    if end is not None and end not in stops:
        name = tokenizer.convert_ids_to_tokens(end)
        fix = f"add it to model.generation_config.eos_token_id: {sorted({*stops, end})}"
        return Check("stop token", "red", f"the template ends a turn with {name!r}, generation stops at {names}", fix)
    return Check("stop token", "green", f"generation stops at {names}")


def rollout_checks(
    task: Task, part: Dataset, model: Any, tokenizer: Any, groups: int, size: int, seed: int
) -> Iterator[Check]:
    """What a first step would see: completions that end, and groups whose rewards differ."""
    from rlkit.prompts import for_model, stop_ids
    from rlkit.rewards import resolve_reward
    from rlkit.sampling import draw

    rows = part.select([i for i in range(min(groups, len(part))) for _ in range(size)])
    seen, length = for_model(rows, tokenizer), _completion_length(task)
    ids = draw(model, tokenizer, list(seen["prompt"]), max_new_tokens=length, seed=seed, batch_size=128)
    stops = stop_ids(model, tokenizer)
    ended = sum(any(token in stops for token in row) for row in ids) / len(ids)
    found = f"{ended:.0%} of {len(ids)} completions end within {length} tokens"
    state = "green" if ended >= 0.5 else "yellow" if ended else "red"
    yield Check(
        "endings", state, found, "" if state == "green" else "a longer max_completion_length, or another template"
    )
    if not task.default_reward:
        return
    texts: list[Any] = tokenizer.batch_decode(ids, skip_special_tokens=True)
    if not isinstance(seen[0]["prompt"], str):
        texts = [[{"role": "assistant", "content": text}] for text in texts]
    columns = {name: list(seen[name]) for name in seen.column_names if name != "prompt"}
    values = resolve_reward(None, task, seed)(prompts=list(seen["prompt"]), completions=texts, **columns)
    yield _variance([values[i : i + size] for i in range(0, len(values), size)])


def _variance(groups: list[Sequence[float | None]]) -> Check:
    equal = sum(len({value for value in group if value is not None}) < 2 for group in groups) / len(groups)
    scored = [value for group in groups for value in group if value is not None]
    mean = f"; the mean reward is {sum(scored) / len(scored):.3g}" if scored else ""
    found = f"in {equal:.0%} of {len(groups)} groups of {len(groups[0])} all rewards are equal and teach nothing{mean}"
    if equal == 1:
        return Check("variance", "red", found, "easier or harder problems, a larger group, or a graded reward")
    return Check("variance", "yellow" if equal > 0.5 else "green", found)

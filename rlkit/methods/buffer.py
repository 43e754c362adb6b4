"""The memory of replay: rollouts that have been drawn before, each operation O(1) however many there are.

No method of its own: `replay.py` plugs it into the trainer. A row is a dict with

    prompt   text that tells prompts apart        born   optimiser step at which it was drawn
    right    whether its reward says so           uses   how often it has been trained

and with tensors that have no padding: token ids, the log-probs and entropies of the policy that drew it, its advantage.
Rows stand in the order of their birth, in a list from which any can be drawn, and in a queue of their prompt. A row
that leaves is swapped with the last of the list, so nothing is ever moved or searched.

`cut` and `join` turn a padded batch into rows and back: prompts are padded on the left, completions on the right, and
masks are not stored, since a row without padding has none.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Row = dict[str, Any]
PROMPT = ("prompt_ids", "prompt_mask")
MASKS = {"prompt_mask": "prompt_ids", "completion_mask": "completion_ids"}


class Bag:
    """Things of which any can be added, taken out or drawn in O(1)."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.items = list(items)
        self._place = {item: i for i, item in enumerate(self.items)}

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, item: object) -> bool:
        return item in self._place

    def add(self, item: Any) -> None:
        """Put in something that is not there."""
        self._place[item] = len(self.items)
        self.items.append(item)

    def discard(self, item: Any) -> None:
        """Take something out; the last item gets its place."""
        place, last = self._place.pop(item), self.items.pop()
        if last != item:
            self.items[place], self._place[last] = last, place

    def draw(self, count: int, rng: random.Random) -> list[Any]:
        """`count` of them, uniform without putting back; all where there are fewer."""
        return rng.sample(self.items, min(count, len(self.items)))


class ReplayBuffer:
    """Rows, oldest first, with counters of how old and how often used they were."""

    def __init__(self) -> None:
        self.fresh: OrderedDict[int, Row] = OrderedDict()
        """The last rows, by number."""
        self.kept: OrderedDict[int, Row] = OrderedDict()
        """Right rows that have aged out of `fresh` and stay longer (positive bias)."""
        self.ages: Counter[int] = Counter()
        """How many rows were trained at each age, in optimiser steps."""
        self.uses: Counter[int] = Counter()
        """How many rows left after so many uses."""
        self._all, self._by_prompt, self._next = Bag(), dict[str, deque[int]](), 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Row]:
        """Rows, oldest first."""
        yield from (*self.kept.values(), *self.fresh.values())

    @property
    def prompts(self) -> Iterable[str]:
        """Prompts that have a row."""
        return self._by_prompt.keys()

    def of(self, prompt: str) -> list[Row]:
        """The rows of a prompt, oldest first."""
        return [self._row(number) for number in self._by_prompt.get(prompt, ())]

    def _row(self, number: int) -> Row:
        return self.fresh[number] if number in self.fresh else self.kept[number]

    def add(self, row: Row) -> None:
        """Put a row in; nothing leaves."""
        self.fresh[self._next] = {"uses": 0, **row}
        self._all.add(self._next)
        self._by_prompt.setdefault(row["prompt"], deque()).append(self._next)
        self._next += 1

    def _leave(self, number: int) -> None:
        row = (self.fresh if number in self.fresh else self.kept).pop(number)
        self._all.discard(number)
        queue = self._by_prompt[row["prompt"]]
        if queue[0] == number:  # rows leave by age, so theirs is nearly always the front
            queue.popleft()
        else:
            queue.remove(number)
        if not queue:
            del self._by_prompt[row["prompt"]]
        self.uses[row["uses"]] += 1

    def shrink(self, size: int, delta: float = 0.0) -> None:
        """First in, first out, down to `size` rows; of them up to `delta * size` are right ones that stay longer."""
        extra = int(delta * size)
        while len(self.fresh) > size - extra:
            number, row = next(iter(self.fresh.items()))
            if extra and row["right"]:
                self.kept[number] = self.fresh.pop(number)
            else:
                self._leave(number)
        while len(self.kept) > extra:
            self._leave(next(iter(self.kept)))

    def shrink_prompt(self, prompt: str, size: int) -> None:
        """First in, first out, down to `size` rows of one prompt."""
        while len(self._by_prompt.get(prompt, ())) > size:
            self._leave(self._by_prompt[prompt][0])

    def forget(self, before: int) -> None:
        """Rows born before that step leave."""
        for part in (self.kept, self.fresh):
            while part and next(iter(part.values()))["born"] < before:
                self._leave(next(iter(part)))

    def draw(self, count: int, rng: random.Random) -> list[Row]:
        """`count` rows, uniform without putting back; all where there are fewer. They stay in the buffer."""
        return [self._row(number) for number in self._all.draw(count, rng)]

    def use(self, rows: Sequence[Row], step: int) -> None:
        """Count rows that are trained at `step`."""
        for row in rows:
            row["uses"] += 1
            self.ages[step - row["born"]] += 1

    def state_dict(self) -> dict[str, Any]:
        """Rows as a few long tensors, places and counters: what makes the next draws the same."""
        numbers = [*self.kept, *self.fresh]
        return {
            "rows": columns(list(self)),
            "numbers": torch.tensor(numbers, dtype=torch.long),
            "kept": len(self.kept),
            "places": torch.tensor(self._all.items, dtype=torch.long),
            "next": self._next,
            "ages": dict(self.ages),
            "uses": dict(self.uses),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.__init__()  # type: ignore[misc]
        numbers, rows = state["numbers"].tolist(), rows_of(state["rows"])
        for place, (number, row) in enumerate(zip(numbers, rows, strict=True)):
            (self.kept if place < state["kept"] else self.fresh)[number] = row
            self._by_prompt.setdefault(row["prompt"], deque()).append(number)
        self._all, self._next = Bag(state["places"].tolist()), state["next"]
        self.ages, self.uses = Counter(state["ages"]), Counter(state["uses"])


def columns(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows of the same entries, one list or one long tensor with its lengths (-1: a single number) for each entry."""
    out: dict[str, Any] = {}
    for key in rows[0] if rows else ():
        values = [row[key] for row in rows]
        if not isinstance(values[0], Tensor):
            out[key] = values
            continue
        lengths = torch.tensor([len(v) if v.ndim else -1 for v in values])
        out[key] = (torch.cat([v.reshape(-1) for v in values]), lengths)
    return out


def rows_of(stored: Mapping[str, Any]) -> list[Row]:
    """The rows that `columns` was given."""
    lists = {key: _split(*value) if isinstance(value, tuple) else value for key, value in stored.items()}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _split(flat: Tensor, lengths: Tensor) -> list[Tensor]:
    parts = flat.split(lengths.abs().tolist())
    return [part.clone() if n >= 0 else part[0].clone() for part, n in zip(parts, lengths.tolist(), strict=True)]


def cut(batch: Mapping[str, Any]) -> list[Row]:
    """The rows of a padded batch, each without its padding; what is not one tensor entry a row is left out."""
    B, T = batch["completion_ids"].shape
    per_row = {k: v.detach().cpu() for k, v in batch.items() if isinstance(v, Tensor) and v.ndim and len(v) == B}
    masks = {ids: per_row[mask].bool() for mask, ids in MASKS.items()}
    parts: dict[str, Sequence[Tensor]] = {}
    for key, value in per_row.items():
        if key in MASKS:
            continue
        value = value.int() if key.endswith("_ids") else value
        if key in PROMPT or (value.ndim == 2 and value.size(1) == T):
            mask = masks["prompt_ids" if key in PROMPT else "completion_ids"]
            parts[key] = value[mask].split(mask.sum(1).tolist())
        else:
            parts[key] = value.unbind()
    # Copies: a part of a long tensor would keep all of it in memory for as long as one row stays.
    return [{key: rows[i].clone() for key, rows in parts.items()} for i in range(B)]


def join(rows: Sequence[Row], like: Mapping[str, Any], pad: int) -> dict[str, Any]:
    """A padded batch of rows that `cut` gave; what is not one entry a row is taken from `like`."""
    out, places = dict(like), {}
    for mask, ids in MASKS.items():
        lengths = torch.tensor([len(row[ids]) for row in rows])
        width = int(lengths.max())
        place = torch.arange(width)
        place = place.flip(0) if mask in PROMPT else place
        places[mask] = place < lengths[:, None]
        out[mask] = places[mask].to(like[mask])
    for key, first in rows[0].items():
        if not isinstance(first, Tensor):
            continue
        if not first.ndim:
            values = torch.stack([row[key] for row in rows])
        else:  # rows one after the other are the True places of the mask, row by row
            where = places["prompt_mask" if key in PROMPT else "completion_mask"]
            values = torch.full(where.shape, pad if key.endswith("_ids") else 0, dtype=first.dtype)
            values[where] = torch.cat([row[key] for row in rows])
        out[key] = values.to(like[key] if key in like else out["completion_mask"].device)
    return out

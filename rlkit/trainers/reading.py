"""Reads the micro-batches of an optimiser step into a `Step`.

That takes one forward for what the policy says of each token, one forward and backward through TRL's loss, and one more
of each for the gradient norm of a row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlkit.steps.step import QUANTITIES, Step, StepRow
from rlkit.trainers import rows
from rlkit.trainers.coefficients import ROW_INDEX

if TYPE_CHECKING:
    from rlkit.trainers.rlvr import RLVRTrainer

LOSS_OPTIONS = ("loss_type", "scale_rewards", "num_generations", "num_iterations", "beta", "epsilon", "temperature")
"""TRL options that a reader of a step wants to know."""
LOGGED = ("reward", "frac_reward_zero_std", "frac_reward_unscorable")
REWARD = "reward/"
"""Before the name of a reward function, where there are several."""
OWN = frozenset({"reward", "group", "rollout", "counted", "age", "advantages", "drawn_at"})
"""Numbers of a row that a `StepRow` has a field for, or that are the trainer's own."""


class Reading:
    """One optimiser step as it is being read."""

    def __init__(self, trainer: RLVRTrainer) -> None:
        self.trainer = trainer
        self.loss = 0.0
        self.gradient = torch.empty(0)
        """(P,) of the loss by all trainable parameters, before clipping; there once `step` has been called."""
        self._parts: list[dict[str, Any]] = []
        self._by_prompt: dict[str, int] | None = None

    def add(self, batch: rows.Batch) -> None:
        """Take one micro-batch through the loss."""
        trainer, (size, width) = self.trainer, batch["completion_ids"].shape
        batch[ROW_INDEX] = torch.arange(size, device=batch["completion_ids"].device)
        with torch.no_grad():
            logps, entropies = trainer.policy_on({**batch, "completion_mask": self._written(batch)})
        trainer._probe = probe = Probe()
        try:
            with trainer.compute_loss_context_manager():
                loss = trainer._compute_loss(trainer.model, batch)
        finally:
            trainer._probe = None
            del batch[ROW_INDEX]
        loss.backward()
        self.loss += float(loss.detach())
        found = {**probe.found(size, width), "logp": logps, "entropy": entropies}
        if "weights" in batch:  # a pooled method has seen all rows, the probe only those that are trained
            found["weight"] = batch["weights"]
        A = batch["advantages"]
        unmasked = batch["completion_mask"].any(1, keepdim=True)  # TRL sets log-probs of masked completions to 0
        found["old_logp"] = torch.where(unmasked, rows.old_logps(batch, logps, trainer.state.global_step), logps)
        found["ratio"] = (logps - found["old_logp"]).exp()
        found["advantage"] = (A[:, None] if A.ndim == 1 else A).expand_as(logps)
        self._parts.append({"batch": dict(batch), **found})

    def step(self, row_gradients: bool = True) -> Step:
        """What was read."""
        trainer = self.trainer
        zero = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        self.gradient = torch.cat([g.detach().flatten() for g in zero])
        read = self._placed([pair for part in self._parts for pair in self._rows(part, row_gradients)])
        logged = {name: values[-1] for name, values in trainer._metrics["train"].items() if values}
        metrics = {"loss": self.loss, "grad_norm": float(self.gradient.norm())}
        metrics |= {name: logged[name] for name in LOGGED if name in logged}
        options = {**trainer.method.options, **{name: getattr(trainer.args, name) for name in LOSS_OPTIONS}}
        place = (trainer.method.name, "rlvr", trainer.state.global_step, trainer.args.seed)
        return Step(*place, options, metrics, read, list(notes(read)))

    @property
    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self.trainer.model.parameters() if p.requires_grad]

    def drawn(self) -> tuple[list[dict[str, Any]], list[list[int]], tuple[int, ...]]:
        """The data-set rows and completions of the generation batch, and how many rollouts each prompt has."""
        last = self.trainer._last
        assert last is not None
        return last.rows, last.scored[2], last.groups.sizes

    def _written(self, batch: rows.Batch) -> Tensor:
        """(B, T) 1 where a token was written, also in a completion that TRL masks because it was cut off."""
        mask = batch["completion_mask"].clone()
        for i in (mask.sum(1) == 0).nonzero().flatten().tolist():
            known = self._fresh(batch, i)
            mask[i, : len(known[1]) if known else 0] = 1
        return mask

    def _fresh(self, batch: rows.Batch, i: int) -> tuple[dict[str, Any], list[int]] | None:
        """Data-set row and token ids of a row of the present generation batch; None for one that joined it later."""
        last = self.trainer._last
        joined = "age" in batch and int(batch["age"][i]) > 0 and "replayed" not in batch
        if joined or last is None:
            return None
        here = int(batch["rollout"][i]) - self.trainer.accelerator.process_index * len(last.rows)
        return last.rows[here], list(last.scored[2][here])

    def _placed(self, found: list[tuple[tuple[int, int, int], StepRow]]) -> list[StepRow]:
        """The rows in order, with their group and their number in it; old rows are groups of their own, behind."""
        last = self.trainer._last
        inside = [] if last is None else [place for size in last.groups.sizes for place in range(size)]
        numbers: dict[Any, int] = {}
        count: dict[int, int] = {}
        out = []
        for (apart, group, rollout), row in sorted(found, key=lambda pair: pair[0]):
            if apart:
                group = numbers.setdefault((apart, group), len(numbers) + (len(last.groups.sizes) if last else 0))
            rollout = count.get(group, 0) if apart else inside[rollout]
            count[group] = count.get(group, 0) + 1
            out.append(dataclasses.replace(row, group=group, rollout=rollout))
        return out

    def _rows(self, part: dict[str, Any], row_gradients: bool) -> Iterator[tuple[tuple[int, int, int], StepRow]]:
        """The rows of a micro-batch, each with where it belongs: (age, group, rollout)."""
        batch, size = part["batch"], part["batch"]["counted"].shape
        for i in range(len(batch["counted"])):
            numbers = {k: v[i].item() for k, v in batch.items() if isinstance(v, Tensor) and v.shape == size}
            age = int(numbers.get("age", 0)) or None
            norm = self._row_norm(part, i) if row_gradients else None
            # Old rows that joined a batch are groups apart; those that joined a group before its rewards are not.
            apart = 0 if "replayed" in numbers else age or 0
            yield (apart, int(numbers["group"]), int(numbers["rollout"])), self._row(part, i, numbers, age, norm)

    def _columns(self, prompt: str) -> dict[str, Any]:
        """Data-set columns of an old row, found by its prompt."""
        if self._by_prompt is None:
            data = self.trainer.train_dataset
            texts = data["prompt"] if "prompt" in data.column_names else []
            self._by_prompt = {text: n for n, text in reversed(list(enumerate(texts))) if isinstance(text, str)}
        number = self._by_prompt.get(prompt)
        return {} if number is None else dict(self.trainer.train_dataset[number])

    def _row(
        self, part: dict[str, Any], i: int, numbers: dict[str, Any], age: int | None, norm: float | None
    ) -> StepRow:
        trainer, batch = self.trainer, part["batch"]
        tokenizer = trainer.processing_class
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
        known = self._fresh(batch, i)
        columns, ids = known or (
            self._columns(tokenizer.decode(prompt, skip_special_tokens=True)),
            batch["completion_ids"][i, : int(batch["completion_mask"][i].sum())].tolist(),
        )
        columns = {name: value for name, value in columns.items() if is_plain(value)}
        values = {name: part[name][i, : len(ids)].tolist() for name in QUANTITIES if name in part}
        reward, advantages = numbers.get("reward", math.nan), values["advantage"]
        per_function = {name.removeprefix(REWARD): v for name, v in numbers.items() if name.startswith(REWARD)}
        own = {name: value for name, value in numbers.items() if name not in OWN and name not in per_function}
        return StepRow(
            group=0,
            prompt=columns.pop("prompt", None) or tokenizer.decode(prompt),
            completion=tokenizer.decode(ids, skip_special_tokens=True),
            prompt_ids=prompt,
            completion_ids=ids,
            tokens=[tokenizer.decode([token]) for token in ids],
            reward=None if math.isnan(reward) else reward,
            rewards={name: None if math.isnan(value) else value for name, value in per_function.items()},
            advantage=sum(advantages) / max(1, len(advantages)),
            counted=bool(batch["counted"][i]),
            trained=any(values["coefficient"]),
            grad_norm=norm,
            age=age,
            values=values,
            extras={**columns, **{k: v for k, v in own.items() if not k.startswith(REWARD)}},
        )

    def _row_norm(self, part: dict[str, Any], i: int) -> float:
        """Norm of the gradient of one row's part of the loss: of its log-probs times the push on each."""
        push, by_entropy = part["coefficient"][i], part["by_entropy"][i]
        if not (push.any() or by_entropy.any()):
            return 0.0
        trainer = self.trainer
        one = rows.take(part["batch"], torch.tensor([i], device=push.device))
        one = rows.trim(one, trainer._padding_is_free)
        with trainer.compute_loss_context_manager():
            logps, entropies = trainer.policy_on(one)
        T = logps.size(1)
        total = -(push[:T] * logps[0]).sum()
        if by_entropy.any():
            total = total + (by_entropy[:T] * entropies[0]).sum()
        grads = torch.autograd.grad(total, self._parameters, allow_unused=True)
        return float(torch.stack([g.norm() for g in grads if g is not None]).norm())


class Probe:
    """Keeps the tensors between the policy and TRL's loss of one micro-batch, so that gradients arrive at them."""

    live: rows.Batch
    logps: Tensor
    entropies: Tensor | None

    def take(self, live: rows.Batch, logps: Tensor, entropies: Tensor | None) -> None:
        """Called between the policy's forward and TRL's loss; the advantages become one a token."""
        A = live["advantages"]
        A = (A[:, None] if A.ndim == 1 else A).expand_as(logps)
        live["advantages"] = A if A.requires_grad else A.clone().requires_grad_()
        self.live, self.logps, self.entropies = live, logps, entropies
        for tensor in (logps, live["advantages"], entropies):
            if tensor is not None and tensor.requires_grad:
                tensor.retain_grad()

    def found(self, size: int, width: int) -> dict[str, Tensor]:
        """`coefficient`, `loss`, `by_entropy` and, of weighted tokens, `weight`, in the rows of the micro-batch."""
        live = self.live
        mask, index = rows.loss_mask(live), live[ROW_INDEX]
        real = mask.bool().any(1)  # rows that only fill up are empty
        A = live["advantages"]
        got = {"coefficient": -_slope(self.logps), "loss": A.detach() * _slope(A)}
        got["by_entropy"] = torch.zeros_like(A) if self.entropies is None else _slope(self.entropies)
        if "weights" in live:
            got["weight"] = live["weights"]
        out = {}
        for name, values in got.items():
            out[name] = values.new_zeros(size, width)
            out[name][index[real], : values.size(1)] = (values * mask)[real]
        return {name: values.detach() for name, values in out.items()}


def _slope(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def notes(read: Sequence[StepRow]) -> Iterator[str]:
    """What a reader of the rows should know."""
    out = sum(not row.counted for row in read)
    flat = sum(row.counted and not row.trained for row in read)
    old = [row.age for row in read if row.age]
    if out:
        yield f"{out} of {len(read)} rollouts were taken out of the batch by the method."
    if flat:
        only = all(row.advantage == 0 for row in read if row.counted and not row.trained)
        why = "their advantage is 0" if only else "their advantage or weight is 0, or they were clipped or cut off"
        yield f"{flat} of {len(read)} rollouts push nothing: {why}."
    if old:
        yield f"{len(old)} of {len(read)} rollouts are replayed, {min(old)} to {max(old)} steps old."


def is_plain(value: Any) -> bool:
    """Whether a column's value says something to a reader: no chat messages, no tensor."""
    return value is None or isinstance(value, str | int | float | bool)

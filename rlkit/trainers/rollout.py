"""The seams `sampler` and `rollout`, and the log-probs of the policy that drew the rows.

TRL's `rollout_func` is where rollouts of a method's own come in; in evaluation and in `collect` it generates as TRL
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from trl import GRPOTrainer

from rlkit.method import Method
from rlkit.trainers import seam_checks
from rlkit.trainers.groups import Groups

Row = dict[str, Any]


@dataclass
class Generation:
    """What is known of the generation batch under way: this rank's rows, the groups of all ranks."""

    rows: list[Row]
    groups: Groups
    drawn: list[Row] | None = None
    """What the method's rollout gave for each row."""
    logps: Tensor | None = None
    """(B, T) under the policy that drew the rows."""
    own: Tensor | None = None
    """(B,) bool: the present policy drew the row, under the prompt that it is trained under."""
    entropies: Tensor | None = None
    """(B, T), for a method that needs log-probs."""
    scored: tuple[Tensor, list[Any], list[list[int]]] = field(default_factory=lambda: (torch.empty(0), [], []))
    """Rewards (B, F) of all ranks; completions and token ids of this rank: TRL keeps none of them in its dict."""


class RolloutSeams(GRPOTrainer):
    """What `RLVRTrainer` does with prompts before generation, and with rollouts before their rewards."""

    method: Method
    uncharged_tokens: int
    _generation: Generation | None
    _given: Sequence[Sequence[int]] | None
    """Completions to use in place of drawing any."""

    if TYPE_CHECKING:  # what Shared has

        def decoded(self, prompt_ids: Sequence[Sequence[int]], images: Any, fields: Any) -> Any:
            """Completions, or None."""

    def _plan(self, inputs: list[Row]) -> Generation:
        """The rows of this rank and all groups, after the `sampler` seam: the same global plan on every rank."""
        G, total = self.num_generations, len(inputs) * self.accelerator.num_processes
        if self.method.sampler is None or self._given is not None:
            return Generation(inputs, Groups((G,) * (total // G)))
        rows = gather_object(inputs)[::G]
        made = self.method.sampler(self.context(group_size=G), self.train_dataset, rows)
        plan = seam_checks.check_plan(made, len(rows), total, self.method)
        every = [dict(row) for row, size in plan for _ in range(size)]
        return Generation(every[self.here(len(inputs))], Groups(tuple(size for _, size in plan)))

    def _generate_single_turn(
        self, prompt_ids: list[Any], images: Any, fields: Any, *rest: Any, **named: Any
    ) -> tuple[list[Any], Any]:
        """What TRL's generation draws, with less work where that is possible; or what a preview was given."""
        if self._given is not None:
            return [list(ids) for ids in self._given], None
        drawn = self.decoded(prompt_ids, images, fields)
        if drawn is not None:
            return drawn, None
        return super()._generate_single_turn(prompt_ids, images, fields, *rest, **named)

    def _rollout(self, prompts: list[Any], trainer: Any = None) -> dict[str, list[Any] | None]:
        """TRL's `rollout_func`."""
        evaluating, charged = self._generation is None, self.uncharged_tokens
        if self._generation is None or self.method.rollout is None:
            got = self.generate_rows([{"prompt": prompt} for prompt in prompts])
            self.uncharged_tokens = charged if evaluating else self.uncharged_tokens
        else:
            got = self._generation.drawn = self._own_rollouts(self._generation)
        names = [name for name in got[0] if name not in seam_checks.DRAWN]
        columns: dict[str, list[Any] | None] = {name: [row[name] for row in got] for name in names}
        return {**columns, "logprobs": self._logprobs_of_vllm(got)}

    def _logprobs_of_vllm(self, got: Sequence[Row]) -> list[Any] | None:
        """What vLLM gave with the rows, if TRL asks for it."""
        if not (self.use_vllm and self.vllm_importance_sampling_correction):
            return None
        if any(row.get("logprobs") is None for row in got):
            raise ValueError(
                f"{seam_checks.who(self.method, 'rollout')}: vLLM's importance correction needs the `logprobs` of "
                "`generate_rows` in every row. Keep them, or set vllm_importance_sampling_correction=False."
            )
        return [row["logprobs"] for row in got]

    def _own_rollouts(self, now: Generation) -> list[Row]:
        assert self.method.rollout is not None
        size = len(now.rows)
        try:
            groups = now.groups.part(self.accelerator.process_index * size, size)
        except ValueError as error:
            raise ValueError(
                f"{seam_checks.who(self.method, 'rollout')}: a process needs whole groups, and {error}. Choose sizes "
                "so that per_device_train_batch_size x steps_per_generation ends with a group."
            ) from None
        columns = {name: [row.get(name) for row in now.rows] for name in now.rows[0]}
        ctx = self.context(group_size=self.num_generations, groups=groups, columns=columns)
        got = self.method.rollout(ctx, now.rows, self)
        return seam_checks.check_rollouts(got, size, self.max_completion_length, set(columns), self.method)

    def _score_drawn(self, prompts: list[Any], ids: Sequence[Sequence[int]], now: Generation | None) -> None:
        """Fill `now.logps` where the policy that drew the rows is not known to be the one that will be trained.

        That is asked for with `needs`, or a row was drawn under another prompt than it is trained under. A rollout's
        own `old_logps` stand.
        """
        wanted = "logps" in self.method.needs
        drawn = None if now is None else now.drawn
        if now is None or (drawn is None and not wanted):
            return
        given: Sequence[Any] = [None] * len(ids)
        moved = [False] * len(ids)
        if drawn is None:
            under = self.tokenize(prompts)
        else:
            given = [row.get("old_logps") for row in drawn]
            under = [_first(row.get("sample_prompt_ids"), row["prompt_ids"]) for row in drawn]
            moved = [list(u) != list(row["prompt_ids"]) for u, row in zip(under, drawn, strict=True)]
            if not wanted and not self.anywhere(any(moved) or any(old is not None for old in given)):
                return
        now.logps, now.entropies = self.score(under, ids)
        now.own = torch.tensor([old is None and not m for old, m in zip(given, moved, strict=True)])
        for row, old in zip(now.logps, given, strict=True):
            if old is not None:
                row[: len(old)] = torch.as_tensor(old, dtype=row.dtype, device=row.device)

    def _calculate_rewards(
        self, inputs: list[Row], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> Tensor:
        now = self._generation
        self._score_drawn(prompts, completion_ids_list, now)
        inputs = self.with_logps(inputs, prompts, completion_ids_list, now)
        per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        for column, (func, name) in enumerate(zip(self.reward_funcs, self.reward_func_names, strict=True)):
            if isinstance(func, torch.nn.Module) and not per_func[:, column].isfinite().all():
                raise ValueError(f"Reward model {name!r} gave NaN or infinite rewards.")
        if now is not None:
            now.scored = per_func, completions, completion_ids_list
            unscorable = per_func.isnan().all(1).float().mean().item()
            self._metrics["train"]["frac_reward_unscorable"].append(unscorable)
        return per_func

    def with_logps(
        self, rows: Sequence[Mapping[str, Any]], prompts: list[Any], ids: Sequence[Any], now: Generation | None = None
    ) -> list[Row]:
        """The rows with the columns `logps` and `entropies`, a 1-D tensor each, if the method needs them."""
        if "logps" not in self.method.needs:
            return list(rows)  # type: ignore[arg-type]
        if now is None or now.logps is None or now.entropies is None:
            scored = self.score(self.tokenize(prompts), ids)
        else:
            scored = now.logps, now.entropies
        parts = zip(rows, *scored, ids, strict=True)
        return [{**row, "logps": lp[: len(c)].cpu(), "entropies": h[: len(c)].cpu()} for row, lp, h, c in parts]


def _first(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value

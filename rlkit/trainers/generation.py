"""Seams at generation time: advantage and `keep`, `batch`, and denominators over the rows that count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from trl import GRPOTrainer

from rlkit.method import Context, Method
from rlkit.trainers import groups, hook_checks, rows, seam_checks
from rlkit.trainers.rollout import Generation


class GenerationSeams(GRPOTrainer):
    """What `RLVRTrainer` does with a generation batch after TRL has drawn and scored it."""

    method: Method
    generated_tokens: int
    uncharged_tokens: int
    draws_rows: bool
    _generation: Generation | None
    _last: Generation | None
    """The last one that is complete: what its rows were, for whoever looks at a step."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> rows.Batch:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        self._generation = now = self._plan(inputs)
        try:
            out = super()._generate_and_score_completions(now.rows)
        finally:
            self._generation = None
        self._last = now
        self.check_room(int(out["prompt_mask"].sum(1).max()))
        lengths = torch.tensor([len(c) for c in now.scored[2]], device=self.accelerator.device)
        lengths = self.accelerator.gather(lengths)
        self._charge(int(lengths.sum()))
        keep = self._set_advantages(now, out, lengths)
        self._explain_silence()
        self._add_columns(now, out, keep)
        if self.method.batch is not None:
            out = seam_checks.check_batch(self.method.batch(self, out), self.args.steps_per_generation, self.method)
        self._set_denominators(out, changed=keep is not None or self.method.batch is not None)
        return out

    def _charge(self, tokens: int) -> None:
        """Count what was drawn. What `generate_rows` draws is counted there, used or not."""
        drawn = torch.tensor([self.uncharged_tokens], device=self.accelerator.device)
        self.generated_tokens += int(self.accelerator.gather(drawn).sum())
        self.generated_tokens += 0 if self.draws_rows else tokens
        self.uncharged_tokens = 0

    def _set_advantages(self, now: Generation, out: rows.Batch, lengths: Tensor) -> Tensor | None:
        """Put the advantages into `out`; gives the method's keep (B,) of all ranks, if there is one."""
        A, keep = None, None
        valid = now.groups.valid(lengths.device)
        if self.method.advantage is not None:
            ctx = self._generation_context(now, lengths)
            A, keep = hook_checks.check_advantage(self.method.advantage(ctx), ctx, self.method)
        if not now.groups.are_all(self.num_generations):
            own, is_zero = self._advantages_of_groups(now)
            A = own if A is None else A
            self._metrics["train"]["frac_reward_zero_std"][-1] = is_zero[valid].float().mean().item()
        if A is None:
            if not out["advantages"].isfinite().all():
                raise ValueError("Advantages are not finite: rewards or reward_weights are too large. Scale them down.")
        elif A.shape == valid.shape:
            flat = A.to(lengths.device)[valid]
            out["advantages"] = flat[self.here(len(out["advantages"]))]
            self._show_advantages(flat.tolist())
        else:
            size, width = out["completion_ids"].shape
            out["advantages"] = rows.local_part(A.to(lengths.device), size, self.accelerator.process_index, width)
        return None if keep is None else keep.to(lengths.device)[valid]

    def _advantages_of_groups(self, now: Generation) -> tuple[Tensor, Tensor]:
        """TRL's advantages, which it has worked out for groups of one size, and where the standard deviation is 0."""
        per_func = now.groups.grid(now.scored[0], torch.nan)
        rewards = now.groups.grid(self.weighted(now.scored[0]), torch.nan)
        weights = self.reward_weights.to(rewards.device)
        each = self.multi_objective_aggregation == "normalize_then_sum"
        return groups.advantages(rewards, per_func, weights, self.scale_rewards, each)

    def _show_advantages(self, values: list[float]) -> None:
        """TRL has put its own advantages into the table of completions: show those that are trained."""
        shown = self._logs["advantages"]
        for _ in range(min(len(values), len(shown))):
            shown.pop()
        shown.extend(values)

    def _add_columns(self, now: Generation, out: rows.Batch, keep: Tensor | None) -> None:
        """Add what TRL's dict lacks: facts and numbers of the rows, and the log-probs of the policy that drew them."""
        size, width = out["completion_ids"].shape
        device = out["completion_ids"].device
        every = torch.ones(size, dtype=torch.bool, device=device)
        out["counted"] = every if keep is None else keep[self.here(size)]
        out.update(self._facts(now, size, device))
        if now.entropies is not None and "logps" in self.method.needs:
            out["entropies"] = rows.local_part(now.entropies, size, 0, width) * out["completion_mask"]
        if now.logps is not None:
            # TRL can mask a whole completion: its log-probs are 0 then on both sides of the ratio
            out["old_per_token_logps"] = rows.local_part(now.logps, size, 0, width) * out["completion_mask"]
            assert now.own is not None
            out["drawn_at"] = torch.where(now.own.to(device), self.state.global_step, rows.NOT_OURS)
        extras = {} if now.drawn is None else seam_checks.numeric_extras(now.drawn, self.method)
        out.update({name: torch.tensor(values, device=device) for name, values in extras.items()})

    def _facts(self, now: Generation, size: int, device: torch.device) -> rows.Batch:
        """Reward (of each function too, where there are several), group and number of each of this rank's rows."""
        here, per_func = self.here(size), now.scored[0]
        facts = {
            "reward": self.weighted(per_func)[here],
            "group": torch.tensor(now.groups.of_rows[here], device=device),
            "rollout": torch.arange(here.start, here.stop, device=device),
        }
        if per_func.size(1) > 1:
            facts |= {f"reward/{name}": per_func[here, f] for f, name in enumerate(self.reward_func_names)}
        return facts

    def _set_denominators(self, out: rows.Batch, changed: bool) -> None:
        """Put in what the losses divide by, over the rows of all ranks that count."""
        device = out["completion_ids"].device
        ranks, counted = self.accelerator.num_processes, out["counted"]
        total = len(counted) * ranks
        if changed:
            tokens = rows.loss_mask(out)[counted].sum()
            sums = self.accelerator.gather(torch.stack([counted.sum(), tokens, (~counted).sum()])[None]).sum(0)
            out["num_items_in_batch"], total = sums[1], int(sums[0])
            if not total:
                raise ValueError(f"{seam_checks.who(self.method, 'batch')}: no row of the batch counts.")
            if sums[2]:
                self._check_bonus()
        per_micro_batch = total / (self.args.steps_per_generation * ranks)
        out["counted_per_micro_batch"] = torch.tensor(per_micro_batch, device=device)

    def here(self, size: int) -> slice:
        """This rank's `size` rows of something global."""
        return slice(self.accelerator.process_index * size, (self.accelerator.process_index + 1) * size)

    def _generation_context(self, now: Generation, lengths: Tensor) -> Context:
        """What an advantage hook sees: the rollouts of all ranks, in prompt order."""
        per_func, completions, ids = now.scored
        gathered, grid = gather_object(now.rows), now.groups.grid
        return self.context(
            group_size=self.num_generations,
            groups=now.groups.of_rows,
            columns={name: [row.get(name) for row in gathered] for name in gathered[0]},
            rewards=grid(self.weighted(per_func), torch.nan),
            rewards_per_func=grid(per_func, torch.nan),
            valid=now.groups.valid(lengths.device),
            lengths=grid(lengths, 0),
            texts=gather_object(completions),
            completion_ids=gather_object(ids),
            **self._everyones_logps([now.logps, now.entropies] if self.method.needs else []),
        )

    def _everyones_logps(self, scored: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """Log-probs and entropies (B, T) of all ranks, for a context."""
        padded = [self.accelerator.pad_across_processes(x, dim=1) for x in scored]
        return dict(zip(("logps", "entropies"), map(self.accelerator.gather, padded), strict=False))

    def check_room(self, longest: int) -> None:
        """Prompts that were not in the data set at the start come from streams, environments and hooks."""
        if self.prompt_room is not None and longest > self.prompt_room:
            raise ValueError(
                f"A prompt of {longest} tokens does not fit: {self.prompt_room} are left of the model's context after "
                f"max_completion_length={self.max_completion_length}."
            )

    def _check_bonus(self) -> None:
        """TRL adds bonus and auxiliary loss before the loss can be scaled to the rows that count."""
        extra = self._entropy_bonus_enabled or self.aux_loss_enabled
        if extra and (self.loss_type in rows.PER_ROW or self.loss_type == "bnpo"):
            raise ValueError(
                f"Method {self.method.name!r} takes rows out (keep), and loss_type={self.loss_type!r} divides by what "
                "is in a micro-batch: an entropy bonus or auxiliary loss would be scaled with it. Use loss_type='dapo' "
                "or 'cispo', or turn the bonus off."
            )

    def _explain_silence(self) -> None:
        """Say once why a loss is 0."""
        metrics, step = self._metrics["train"], self.state.global_step + 1
        if metrics["frac_reward_unscorable"][-1] == 1:
            self.tell("No rollout of step %d could be scored: every reward is None.", step)
        elif metrics["frac_reward_zero_std"][-1] == 1:
            self.tell(
                "All rewards are equal within every group of step %d (share of zero-variance groups 1.0): advantages, "
                "loss and gradient are 0 there. Later steps like it are only counted, in `frac_reward_zero_std`.",
                step,
            )

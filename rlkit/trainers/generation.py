"""Seams at generation time: rewards, advantage and `keep`, and denominators over the rows that count."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from trl import GRPOTrainer

from rlkit.method import Context, Method
from rlkit.trainers import hook_checks, rows


class GenerationSeams(GRPOTrainer):
    """What `RLVRTrainer` does with a generation batch after TRL has drawn and scored it."""

    method: Method
    generated_tokens: int

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> rows.Batch:
        out = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return out
        self._check_room(out["prompt_mask"])
        ids = self._scored[2]
        lengths = torch.tensor([len(c) for c in ids], device=self.accelerator.device)
        lengths = self.accelerator.gather(lengths)
        self.generated_tokens += int(lengths.sum())
        self._explain_silence()
        keep = self._set_advantages(inputs, out, lengths)
        self._set_denominators(out, keep)
        return out

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> Tensor:
        per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        for column, (func, name) in enumerate(zip(self.reward_funcs, self.reward_func_names, strict=True)):
            if isinstance(func, torch.nn.Module) and not per_func[:, column].isfinite().all():
                raise ValueError(f"Reward model {name!r} gave NaN or infinite rewards.")
        if self.model.training:
            self._scored = per_func, completions, completion_ids_list  # TRL keeps no rewards in its dict
            unscorable = per_func.isnan().all(1).float().mean().item()
            self._metrics["train"]["frac_reward_unscorable"].append(unscorable)
        return per_func

    def _set_advantages(self, inputs: list[dict[str, Any]], out: rows.Batch, lengths: Tensor) -> Tensor | None:
        """Put the method's advantages into `out`; gives its keep (N, G) of all ranks, if there is one."""
        if self.method.advantage is None:
            if not out["advantages"].isfinite().all():
                raise ValueError("Advantages are not finite: rewards or reward_weights are too large. Scale them down.")
            return None
        ctx = self._generation_context(inputs, lengths)
        advantages, keep = hook_checks.check_advantage(self.method.advantage(ctx), ctx, self.method)
        size = len(out["advantages"])
        if advantages.numel() == len(lengths):
            flat = advantages.reshape(-1)
            out["advantages"] = flat[self._here(size)]
            self._show_advantages(flat.tolist())
        else:
            width = out["completion_ids"].size(1)
            out["advantages"] = rows.local_part(advantages, size, self.accelerator.process_index, width)
        return keep

    def _show_advantages(self, values: list[float]) -> None:
        """TRL has put its own advantages into the table of completions: show those that are trained."""
        shown = self._logs["advantages"]
        for _ in range(min(len(values), len(shown))):
            shown.pop()
        shown.extend(values)

    def _set_denominators(self, out: rows.Batch, keep: Tensor | None) -> None:
        """Add `counted` (B,), and what the losses divide by, over the rows of all ranks that count."""
        size, ranks = len(out["completion_ids"]), self.accelerator.num_processes
        device = out["completion_ids"].device
        out["counted"] = torch.ones(size, dtype=torch.bool, device=device)
        counted = size * ranks
        if keep is not None and not keep.all():
            self._check_bonus()
            counted = int(keep.sum())
            out["counted"] = keep.reshape(-1)[self._here(size)]
            tokens = rows.loss_mask(out)[out["counted"]].sum()
            out["num_items_in_batch"] = self.accelerator.gather(tokens).sum()
        per_micro_batch = counted / (self.args.steps_per_generation * ranks)
        out["counted_per_micro_batch"] = torch.tensor(per_micro_batch, device=device)

    def _here(self, size: int) -> slice:
        """This rank's `size` rows of something global."""
        return slice(self.accelerator.process_index * size, (self.accelerator.process_index + 1) * size)

    def _generation_context(self, inputs: list[dict[str, Any]], lengths: Tensor) -> Context:
        """What an advantage hook sees: the rollouts of all ranks, in prompt order."""
        per_func, completions, ids = self._scored
        G = self.num_generations
        gathered = gather_object(inputs)
        rewards = self.weighted(per_func).view(-1, G)
        return self.context(
            columns={name: [row.get(name) for row in gathered] for name in gathered[0]},
            rewards=rewards,
            rewards_per_func=per_func.view(-1, G, per_func.size(1)),
            valid=torch.ones_like(rewards, dtype=torch.bool),
            lengths=lengths.view(-1, G),
            texts=gather_object(completions),
            completion_ids=gather_object(ids),
        )

    def context(self, **fields: Any) -> Context:
        """A `Context` with step, seed and options filled in."""
        state = self.state
        known = {"step": state.global_step, "max_steps": state.max_steps, "seed": self.args.seed}
        return Context(**known, options=self.method.options, **fields)

    def _check_room(self, prompt_mask: Tensor) -> None:
        """Prompts that were not in the data set at the start come from streams and environments."""
        longest = int(prompt_mask.sum(1).max())
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

"""RLEP: right rollouts of a first run join the groups of a second one, which starts from the beginning again.

Paper: arXiv 2507.07451 (full text and code read). Phase 1 trains and collects right answers; phase 2 starts from the
base again, and a group is 16 fresh rollouts and 2 stored right ones, at random, standardised together:

    A_i = (r_i - mean(r)) / std(r) over 18 rows;    stored rows are treated as fresh: their ratio starts at 1

The store does not change in phase 2. Questions with fewer than two right answers have none.

What is different here, and why. Both phases are one run: the first `first_run` steps are plain training that keeps up
to `per_prompt` right rollouts a prompt (the paper samples 64 more answers from the end policy), then the starting
weights come back, Adam's moments are forgotten, and steps go on counting; so the first run is charged. Stored rows take
the place of rollouts (`group_replay.py`): 2 of 8. The clip is TRL's, without the paper's higher upper bound, and there
is no penalty on length. With `ratio_source="stored"` the ratio is the one to the policy that drew the row. With
`first_run=0` there is one phase that stores and replays at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlkit.method import Context, Method
from rlkit.methods.group_replay import OPTIONS, GroupReplay, key_of, seams
from rlkit.methods.replay import seeded

if TYPE_CHECKING:
    import pandas as pd


class TwoRuns(GroupReplay):
    """Stores in the first run, replays in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.start: dict[str, Tensor] = {}
        """The starting weights, until they are put back."""

    def replays(self, ctx: Context) -> bool:
        """In the second run."""
        return super().replays(ctx) and ctx.step >= ctx.options["first_run"]

    def stores(self, ctx: Context) -> bool:
        """In the first run, if there is one."""
        return super().stores(ctx) and (not ctx.options["first_run"] or ctx.step < ctx.options["first_run"])

    def restart(self, trainer: Any) -> Restart:
        """The callback that puts the starting weights back."""
        (memory,) = (thing for thing in trainer.method.state if isinstance(thing, TwoRuns))
        return Restart(trainer, memory)

    def state_dict(self) -> dict[str, Any]:
        """Rows, and the starting weights while they are needed."""
        return {**super().state_dict(), "start": self.start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        super().load_state_dict(state)
        self.start = dict(state["start"])


class Restart:
    """Puts the weights of the start back, and forgets the optimiser's moments, after `first_run` steps."""

    def __init__(self, trainer: Any, memory: TwoRuns) -> None:
        self.trainer, self.memory = trainer, memory

    def _parameters(self) -> dict[str, Tensor]:
        return {name: p for name, p in self.trainer.model.named_parameters() if p.requires_grad}

    def on_train_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """Remember the weights; a resumed run has them from its checkpoint."""
        if state.global_step < self.trainer.method.options["first_run"] and not self.memory.start:
            self.memory.start = {name: p.detach().cpu().clone() for name, p in self._parameters().items()}

    def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """After the last step of the first run."""
        if self.memory.start and state.global_step == self.trainer.method.options["first_run"]:
            with torch.no_grad():
                for name, p in self._parameters().items():
                    p.copy_(self.memory.start[name])
            self.trainer.optimizer.state.clear()
            self.memory.start = {}


def imitate(
    model: Any,
    rows: Sequence[tuple[list[int], list[int]]],
    steps: int,
    size: int,
    rate: float,
    after: Callable[[int], None] = lambda step: None,
) -> None:
    """The control: supervised training on the same right rollouts, in place. No group, no advantage, no ratio.

    Args:
        model: a causal language model.
        rows: (prompt ids, completion ids) of each rollout.
        steps: AdamW steps.
        size: rows a step, drawn uniformly without putting back.
        rate: learning rate.
        after: called with the number of steps done, after each.

    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    for step in range(steps):
        batch = seeded("imitate", step).sample(list(rows), min(size, len(rows)))
        whole = [torch.tensor(prompt + completion) for prompt, completion in batch]
        ids = pad_sequence(whole, batch_first=True)
        place = torch.arange(ids.size(1))
        starts = torch.tensor([len(prompt) for prompt, _ in batch])[:, None]
        ends = torch.tensor([len(row) for row in whole])[:, None]
        wanted = ids.masked_fill((place < starts) | (place >= ends), -100)
        loss = model(input_ids=ids, attention_mask=(place < ends).long(), labels=wanted).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        after(step + 1)


def imitation_study(first_run: int, steps: int, seed: int, every: int = 10, **settings: Any) -> pd.DataFrame:
    """RLEP's first run, then supervised training of the starting model on the right rollouts that it has stored.

    Args:
        first_run: steps of the first run.
        steps: supervised steps of 64 rows, at the learning rate of the run.
        seed: of the first run.
        every: supervised steps between two evaluations.
        settings: of `rlkit.trainer`.

    Returns:
        `step` and greedy `accuracy` on test prompts, `successes` (how many rows there were) and `generated_tokens` of
        the first run.

    """
    import pandas as pd

    from rlkit.runs.training import Evaluation
    from rlkit.trainers.factory import trainer as build

    first = build("rlep", seed=seed, first_run=first_run + 1, max_steps=first_run, **settings)
    start = {name: value.clone() for name, value in first.model.state_dict().items()}
    first.train()
    prompts = {key_of(row): row["prompt"] for row in first.train_dataset}
    stored = list(first.method.state[0].buffer)
    asked = first.tokenize([prompts[row["prompt"]] for row in stored])
    rows = [(ids, row["completion_ids"].tolist()) for ids, row in zip(asked, stored, strict=True)]
    first.model.load_state_dict(start)
    look = Evaluation(first)
    look.evaluate(0)
    rate = first.args.learning_rate
    imitate(first.model, rows, steps, 64, rate, lambda step: None if step % every else look.evaluate(step))
    found = pd.DataFrame([{"step": step, "accuracy": value} for step, _, value in look.accuracy])
    return found.assign(successes=len(rows), generated_tokens=first.generated_tokens)


_memory = TwoRuns()

RLEP = Method(
    "rlep",
    summary="right rollouts of a first run join the groups of a second one",
    paper="2507.07451",
    options={**OPTIONS, "store": "correct", "at_least": 2, "ratio_source": "recomputed", "first_run": 50},
    **{**seams(_memory), "reduces_to": {"mix": 0.0, "first_run": 0}},
    callbacks=(_memory.restart,),
)

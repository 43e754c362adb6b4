"""A method's own reward: it is called with the rows of all ranks, so that its memory is the same on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from accelerate.utils import gather_object

from rlkit.trainers.hook_checks import CheckedReward, check_rewards

if TYPE_CHECKING:
    from rlkit.trainers.rlvr import RLVRTrainer

NOT_GATHERED = ("environments", "trainer_state", "log_extra", "log_metric")


class OwnReward(CheckedReward):
    """Calls the reward with the rows of all ranks and the keywords `options` and `learn`; gives this rank's rewards."""

    def __init__(self, func: Callable[..., Any], name: str, trainer: RLVRTrainer) -> None:
        super().__init__(func, name)
        self.trainer = trainer

    def __call__(self, *, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Rewards of the completions. Raises ValueError as `check_rewards` does."""
        here = self.trainer.here(len(completions))
        if self.trainer.accelerator.num_processes > 1:
            per_row = {k: v for k, v in columns.items() if k not in NOT_GATHERED and isinstance(v, list)}
            columns.update({name: gather_object(per_row[name]) for name in sorted(per_row)})
            completions, log_extra = gather_object(list(completions)), columns["log_extra"]
            columns["log_extra"] = lambda column, values: log_extra(column, list(values)[here])
        own = {"options": self.trainer.method.options, "learn": self.trainer.learns}
        with self._named(completions):
            values = self.func(completions=completions, **{**columns, **own})
        return check_rewards(values, self.__name__, completions)[here]

"""Self-distillation: the teacher is the same model that has read more than the student.

Papers: OPSD arXiv 2601.18734 (released code read; numbers and the clip's size only second-hand), OPSDC (CRISP) arXiv
2603.05433 (TeX source and code read). The student writes y after its prompt x; at each of its tokens the same model,
frozen, says what it would write there after another prompt:

    OPSD    KL(q || p), q = p_start(. | x, reference solution, y_<t), each term of the sum over v cut at tau
    OPSDC   KL(p || q), q = p_frozen(. | x, "be brief", y_<t), the frozen weights renewed every M steps

The gradient goes through the student only. What the teacher reads is the column `teacher_prompt`, made here from the
option `template`: its `{prompt}` is the student's prompt, its `{solution}` a right solution (column `solution`, or
`steps` and `gold`), its `{gold}` the right answer. A pretrained model reads instructions; a tiny base knows only the
prompts that it was trained on, so give it a template of those.

What is different here, and why. Under an adapter the frozen weights are the base below it, and nothing is held twice;
with all weights trained a frozen copy is held, as every paper does. `teacher="self"` in a `Method` of one's own takes
the weights of the moment instead, at no memory: the paper's M = 1, which collapses there. The size of OPSD's clip could
not be read, so that it is off (tau = 0) unless set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rlkit.method import Context, Method
from rlkit.methods.hints import worked_solution

WITH_SOLUTION = (
    "{prompt}\n\nHere is a reference solution:\n{solution}\n\n"
    "Now solve the problem again in your own words, step by step, and give the final answer."
)
BRIEFLY = "{prompt}\n\nBe concise: write only the steps that are needed, then the final answer."
_PLACE = re.compile(r"\{(prompt|solution|gold)\}")


def teacher_prompt(row: Mapping[str, Any], template: str) -> Any:
    """The teacher's prompt of a data-set row: a text, or chat messages, of which the last one is rewritten.

    Raises:
        ValueError: the template asks for a solution or answer that the row does not have.

    """
    prompt = row["prompt"]
    values = {"prompt": prompt if isinstance(prompt, str) else prompt[-1]["content"]}
    if "{solution}" in template:
        values["solution"] = worked_solution(row)
    if "{gold}" in template:
        if row.get("gold") is None:
            raise ValueError(f"The template asks for {{gold}}, and the row has only {sorted(row)}.")
        values["gold"] = str(row["gold"])
    # Not str.format: prompts and templates are full of other braces.
    made = _PLACE.sub(lambda found: values[found[1]], template)
    return made if isinstance(prompt, str) else [*prompt[:-1], {**prompt[-1], "content": made}]


def with_teacher_prompts(dataset: Any, trainer: Any) -> Any:
    """The seam `data`: every row gets its `teacher_prompt`, where the data does not bring one."""
    if "teacher_prompt" in dataset.column_names:
        return dataset
    template = trainer.method.options["template"]
    return dataset.add_column("teacher_prompt", [teacher_prompt(row, template) for row in dataset])


def clipped_forward_kl(student: Tensor, teacher: Tensor, clip: float = 0.0) -> Tensor:
    """(R,) sum over v of min(q (log q - log p), clip), from logits (R, V); clip = 0 leaves the forward KL as it is.

    The clip keeps a few style tokens, at which the teacher is far away, from being all that is learned.
    """
    log_p, log_q = student.log_softmax(-1), teacher.log_softmax(-1)
    terms = log_q.exp() * (log_q - log_p)
    return (terms.clamp(max=clip) if clip else terms).sum(-1)


def _opsd(student: Tensor, teacher: Tensor, ctx: Context) -> Tensor:
    return clipped_forward_kl(student, teacher, ctx.options["clip"])


class Refresh:
    """Makes the teacher the present student every `refresh_every` steps; 0: never."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """After each step."""
        every = self.trainer.method.options["refresh_every"]
        if every and state.global_step % every == 0:
            self.trainer.refresh_teacher()


OPSD = Method(
    "opsd",
    summary="the teacher is the same model, shown a reference solution",
    paper="2601.18734",
    trainer="distill",
    parent="opd_forward",
    options={"template": WITH_SOLUTION, "clip": 0.0},
    no_reduction="its teacher is the student itself: under the same prompt there is no gradient at the start",
    data=with_teacher_prompts,
    divergence=_opsd,
    teacher="initial",
)

OPSDC = Method(
    "opsdc",
    summary="the teacher is the same model, told to be brief",
    paper="2603.05433",
    trainer="distill",
    parent="opd",
    config={"beta": 1.0},
    options={"template": BRIEFLY, "refresh_every": 50},
    no_reduction="its teacher is the student itself: under the same prompt there is no gradient at the start",
    data=with_teacher_prompts,
    callbacks=(Refresh,),
    teacher="initial",
)

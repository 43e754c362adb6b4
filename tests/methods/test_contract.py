"""What every method of the catalogue keeps, tried through `trainer.train()` on the tiny base.

A method of one's own is under this contract as soon as its file is in `rlkit/methods/`.
"""

from __future__ import annotations

import inspect
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import rlkit
from rlkit.method import Method
from rlkit.models import load_model
from tests.tiny import history

METHODS = list(rlkit.catalog())
SMALL = {"train_size": 32, "max_steps": 3, "learning_rate": 1e-4}
FAMILY: dict[str, dict[str, Any]] = {
    "rlvr": {"prompts_per_step": 4, "num_generations": 4},
    "distill": {"prompts_per_step": 16},
}
LOGGED = ("loss", "grad_norm", "reward", "num_tokens", "generated_tokens", "rows_left_out", "kept_share", "entropy")
per_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


def build(method: Method, folder: Path, **settings: Any) -> Any:
    """A trainer at a size that takes a tenth of a second a step; with the method's own reward, if it has one.

    A teacher is the base with noise on its weights; a student that teaches itself is asked for the answer at once.
    """
    from transformers.trainer_callback import PrinterCallback

    own: dict[str, Any] = {}
    if method.trainer == "rlvr":
        own = {"reward": "graded"} if method.reward is None else {}
    elif method.teacher == "model":
        own = {"teacher": noisy_base()}
    if "template" in method.options:
        own["template"] = "{prompt}#"
    given = {**SMALL, **FAMILY[method.trainer], **own, **settings}
    made = rlkit.trainer(method, preset="smoke", output_dir=str(folder), **given)
    made.remove_callback(PrinterCallback)
    return made


def noisy_base() -> Any:
    """The base of the task with a little noise: a teacher of the same vocabulary that says other things."""
    model, _ = load_model("chain")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=generator))
    return model


def weights(trainer: Any) -> Any:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


@per_method
def test_it_says_what_it_is(method: Method) -> None:
    module = next(m for name, m in sys.modules.items() if name.startswith("rlkit.methods.") and _holds(m, method))
    assert method.summary and not method.summary.endswith(".")
    assert inspect.getdoc(module) and "What is different here" in inspect.getdoc(module)
    assert method.paper or method.parent, "a paper, or the method that this one is a variant of"
    assert method.parent is None or method.parent in rlkit.catalog()
    assert (method.reduces_to is None) == bool(method.no_reduction), "a setting that equals the parent, or why not"
    assert "trl" not in vars(module)


def _holds(module: Any, method: Method) -> Any:
    return any(value is method for value in vars(module).values())


@pytest.mark.parametrize("method", [m for m in METHODS if m.reduces_to is not None], ids=lambda method: method.name)
def test_at_one_setting_it_is_its_parent(method: Method, tmp_path: Path) -> None:
    assert method.reduces_to is not None and method.parent is not None
    reduced = build(method, tmp_path, max_steps=2, **method.reduces_to)
    like: dict[str, Any] = {}
    if method.trainer == "rlvr":
        # The parent leaves rows out where the method does, so that they do the same arithmetic. A method with a reward
        # of its own reduces to its parent under the task's default reward.
        like = {"skip_zero_advantage": reduced.skips_rows, **({} if method.reward is None else {"reward": None})}
    parent = build(rlkit.catalog()[method.parent], tmp_path, max_steps=2, **like)
    for trainer in (reduced, parent):
        trainer.train()
    found, expected = history(reduced, *LOGGED), history(parent, *LOGGED)
    if any(getattr(method, seam, None) for seam in ("surrogate", "pooled", "divergence")):
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    else:
        assert found == expected
        assert torch.equal(weights(reduced), weights(parent))


@per_method
def test_three_steps_train_and_a_resumed_run_is_the_same(method: Method, tmp_path: Path) -> None:
    whole = build(method, tmp_path, save_strategy="steps", save_steps=2)
    before = weights(whole)
    whole.train()
    logged = history(whole, *LOGGED)
    assert len(logged) == 3 and all(math.isfinite(value) for line in logged for value in line)
    assert any(norm > 0 for _, norm, *_ in logged)
    assert (weights(whole) - before).abs().max() > 0
    resumed = build(method, tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert history(resumed, *LOGGED)[-1] == logged[-1]
    assert torch.equal(weights(resumed), weights(whole))


@per_method
def test_unknown_options_are_refused(method: Method, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Unknown setting 'lerning_rate' .*'learning_rate'"):
        build(method, tmp_path, lerning_rate=1.0)
    with pytest.raises(ValueError, match=rf"Method '{method.name}' has no option 'nonsense'"):
        method.with_options(nonsense=1)


@per_method
def test_two_seeds_differ(method: Method, tmp_path: Path) -> None:
    runs = []
    for seed in (0, 1):
        trainer = build(method, tmp_path, seed=seed, max_steps=1)
        trainer.train()
        runs.append(history(trainer, "grad_norm", "reward", "num_tokens", "entropy"))
    assert runs[0] != runs[1]

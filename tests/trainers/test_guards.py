"""What would train wrongly or not at all is an error that names the cause and the fix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlkit.method import Context, Method
from rlkit.trainers.checks import check_batch
from tests.tiny import Build, history, length_reward, tiny_data, tiny_model, tiny_tokenizer


def _train(build: Build, **options: Any) -> Any:
    trainer = build(**{"max_steps": 1, **options})
    trainer.train()
    return trainer


# ---- batches and data


@pytest.mark.parametrize(
    ("size", "group", "told"),
    [
        (10, 4, r"Nearest batches: 8 or 12; nearest num_generations for 10: 2 or 5"),
        (3, 4, r"Nearest batches: 4; nearest num_generations for 3: 3"),
        (32, 5, r"Nearest batches: 30 or 35; nearest num_generations for 32: 4 or 8"),
        (8, 1, r"The smallest group is 2"),
        (8, 0, r"The smallest group is 2"),
    ],
)
def test_batches_that_do_not_divide_name_the_nearest(size: int, group: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check_batch(size, group)


def test_a_batch_changed_after_the_config_was_made_is_still_checked(build: Build, tmp_path: Path) -> None:
    from tests.tiny import tiny_config

    args = tiny_config(tmp_path)
    args.num_generations = 5
    with pytest.raises(ValueError, match=r"batch of 32 completions .* num_generations=5\. Nearest"):
        build(named={"args": args})


def test_a_data_set_smaller_than_a_generation_batch_is_refused(build: Build) -> None:
    told = r"has 7 prompts and one generation batch takes 8 .* at least 8 prompts, or a generation batch of 28"
    with pytest.raises(ValueError, match=told):
        build(data=tiny_data(7))
    assert _train(build, data=tiny_data(8)).state.global_step == 1


def test_prompts_that_do_not_fit_are_counted_and_refused_or_dropped(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    data, context = tiny_data(16), 14
    lengths = [len(tiny_tokenizer()(p)["input_ids"]) for p in data["prompt"]]
    long = sum(n > context - 8 for n in lengths)
    assert 0 < long <= 8
    with pytest.raises(
        ValueError, match=rf"{long} of 16 train prompts do not fit: the longest has {max(lengths)} tokens"
    ):
        build(data=data, model=tiny_model(context=context))
    named = {"on_long_prompt": "drop", "eval_dataset": tiny_data(16)}
    trainer = build(data=data, model=tiny_model(context=context), named=named)
    assert len(trainer.train_dataset) == len(trainer.eval_dataset) == 16 - long
    assert trainer.dropped_prompts == {"train": long, "eval": long}
    assert f"{long} of 16 train prompts do not fit" in caplog.text
    trainer.train()
    with pytest.raises(ValueError, match=r"on_long_prompt is 'refuse' or 'drop', not 'cut'"):
        build(named={"on_long_prompt": "cut"})


def test_a_stream_of_prompts_is_checked_batch_by_batch(build: Build) -> None:
    data = tiny_data(16).to_iterable_dataset()
    assert _train(build, data=data).state.global_step == 1
    with pytest.raises(ValueError, match=r"A prompt of \d tokens does not fit: 4 are left"):
        _train(build, data=data, model=tiny_model(context=12))


# ---- settings


def test_cispo_needs_an_explicit_cap(build: Build) -> None:
    for cap in (None, 0.28):
        with pytest.raises(ValueError, match=rf"cispo.*it is {cap} .*Set epsilon_high to 1 or more, for example 5\.0"):
            build(loss_type="cispo", epsilon_high=cap)
    assert build(loss_type="cispo", epsilon_high=1.0)


@pytest.mark.parametrize("loss", ["bnpo", "dr_grpo", "dapo", "cispo"])
def test_a_sequence_ratio_with_a_token_summed_loss_is_refused(build: Build, loss: str) -> None:
    with pytest.raises(ValueError, match=r"long rows count more\. Use loss_type='grpo' for GSPO"):
        build(loss_type=loss, epsilon_high=5.0, importance_sampling_level="sequence")
    assert build(loss_type="grpo", importance_sampling_level="sequence")


def test_unknown_losses_and_arguments_are_errors(build: Build) -> None:
    with pytest.raises(ValueError, match="Unknown loss type: nonsense"):
        _train(build, loss_type="nonsense")
    with pytest.raises(TypeError, match="rewards"):
        build(named={"rewards": 1})
    with pytest.raises(KeyError, match=r"no method 'grop'\. Did you mean 'grpo'"):
        build(method="grop")
    with pytest.raises(ValueError, match="runs on the 'distill' trainer"):
        build(method=Method("opd", trainer="distill"))


def test_a_method_sets_what_args_leave_at_the_default_and_says_so(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = build(method="dr_grpo", scale_rewards="batch")
    assert (trainer.args.loss_type, trainer.args.scale_rewards) == ("dr_grpo", "batch")
    assert "sets loss_type='dr_grpo'" in caplog.text and "args say 'batch', which stands" in caplog.text
    trainer = build(method="dr_grpo", named={"apply_config": False})
    assert trainer.args.loss_type == "dapo"
    with pytest.raises(ValueError, match="'losstype', which is not an option of GRPOConfig"):
        build(method=Method("typo", config={"losstype": "grpo"}))


def test_what_is_set_is_what_runs(build: Build) -> None:
    """No default of a method or of the trainer changes an explicit value."""
    config = {"beta": 0.0, "epsilon": 0.3, "num_iterations": 2, "temperature": 0.7, "loss_type": "bnpo"}
    trainer = build(method="mc_grpo", num_generations=5, per_device_train_batch_size=40, **config)
    assert {name: getattr(trainer.args, name) for name in config} == config
    assert (trainer.args.num_generations, trainer.loss_type, trainer.ref_model) == (5, "bnpo", None)


def test_an_even_group_for_the_median_names_the_odd_size(build: Build) -> None:
    with pytest.raises(ValueError, match=r"num_generations=5 to train 4 rows a prompt, or 3 to train 2"):
        _train(build, method="mc_grpo")


def test_an_entropy_bonus_with_rows_taken_out_needs_a_loss_that_counts_tokens(build: Build) -> None:
    drop = Method("drop", advantage=lambda ctx: (ctx.rewards, torch.arange(4).expand(8, 4) > 0))
    with pytest.raises(ValueError, match=r"'drop' takes rows out .* Use loss_type='dapo'"):
        _train(build, method=drop, loss_type="grpo", entropy_coef=0.01)
    assert _train(build, method=drop, loss_type="dapo", entropy_coef=0.01).state.global_step == 1


def test_a_reference_that_was_never_saved_is_refused(build: Build) -> None:
    with pytest.raises(ValueError, match=r"beta=0\.1 needs a reference model.* made in memory"):
        build(beta=0.1)


# ---- rewards


@pytest.mark.parametrize("method", ["grpo", "dr_grpo", "rloo", "mc_grpo", "flipped_signs"])
def test_a_completion_that_cannot_be_scored_is_left_out_of_its_group_and_counted(build: Build, method: Method) -> None:
    """Its advantage is 0 and the others' baseline is that of the group without it; a group of None changes nothing."""
    seen = []

    def some(completions: Sequence[Any], id: Any, **columns: Any) -> Any:
        values = length_reward(completions)
        seen.append([None if i == 3 or k % 5 == 1 else v for k, (i, v) in enumerate(zip(id, values, strict=True))])
        return seen[-1]

    trainer = _train(build, method=method, reward=some, num_generations=5, per_device_train_batch_size=40)
    share = sum(v is None for v in seen[0]) / 40
    (logged, norm), *_ = history(trainer, "frac_reward_unscorable", "grad_norm")
    assert logged == pytest.approx(share) and share > 0.1 and 0 < norm < math.inf
    advantages = list(trainer._logs["advantages"])
    assert all(a == 0 for a, v in zip(advantages, seen[0], strict=True) if v is None)
    if method == "dr_grpo":
        for start in range(0, 40, 5):
            group = [v for v in seen[0][start : start + 5] if v is not None]
            expected = [0.0 if v is None else v - sum(group) / len(group) for v in seen[0][start : start + 5]]
            assert advantages[start : start + 5] == pytest.approx(expected, abs=1e-6)


def test_equal_rewards_everywhere_are_explained_once(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    def flat(completions: Sequence[Any], **columns: Any) -> Any:
        return [1.0] * len(completions)

    trainer = _train(build, reward=flat, max_steps=3)
    assert history(trainer, "loss", "grad_norm", "frac_reward_zero_std", "rows_left_out") == [(0, 0, 1, 1)] * 3
    assert (
        caplog.text.count("All rewards are equal within every group of step 1 (share of zero-variance groups 1.0)") == 1
    )
    assert caplog.text.count("nothing was learned") == 1
    assert not any("entropy/trained_rows" in line for line in trainer.state.log_history)


# ---- tokens


def test_a_tokenizer_without_pad_token_is_a_choice(build: Build) -> None:
    tokenizer = tiny_tokenizer(pad_token=None)
    with pytest.raises(ValueError, match=r"no pad token\. Choose one: `tokenizer\.pad_token = tokenizer\.eos_token`"):
        build(named={"processing_class": tokenizer})


def test_with_pad_equal_to_eos_the_end_token_stays_in_the_loss(build: Build) -> None:
    """The same run with a pad token of its own and with pad = eos: bit for bit, and finished rows train their end."""
    runs, masks = [], []

    def spy(ctx: Context) -> Any:
        ids = ctx.extras["completion_ids"]
        last = (ctx.mask.sum(1) - 1).clamp(min=0).long()
        masks.append((ids.gather(1, last[:, None])[:, 0] == 2).sum().item())
        return torch.ones_like(ctx.logps)

    for pad in ("<pad>", "</s>"):
        trainer = build(named={"processing_class": tiny_tokenizer(pad_token=pad)}, max_steps=2)
        trainer.train()
        runs.append(history(trainer, "grad_norm", "loss", "trained_tokens", "completions/clipped_ratio"))
        tokenizer = {"processing_class": tiny_tokenizer(pad_token=pad)}
        spied = build(method=Method("spy", token_weight=spy), named=tokenizer, max_steps=1)
        spied.train()
        finished = 1 - history(spied, "completions/clipped_ratio")[0][0]
        assert masks[-1] == round(finished * 32) > 0
    assert runs[0] == runs[1]


def test_several_end_tokens_end_a_completion(build: Build) -> None:
    model = tiny_model()
    model.generation_config.eos_token_id = [2, 5]
    ends = []

    def spy(ctx: Context) -> Any:
        ends.extend(c[-1] for c in ctx.completion_ids)
        assert not any(t in (2, 5) for c in ctx.completion_ids for t in c[:-1])
        return ctx.rewards - ctx.rewards.mean(1, keepdim=True)

    trainer = _train(build, model=model, method=Method("spy", advantage=spy))
    cut = history(trainer, "completions/clipped_ratio")[0][0]
    assert cut == pytest.approx(sum(t not in (2, 5) for t in ends) / 32) and 5 in ends and 2 in ends


def test_a_completion_that_is_only_an_end_token_is_kept_and_trained(build: Build) -> None:
    drawn, trained = [], []

    def short(completion_ids: Any, **columns: Any) -> Any:
        drawn.append([len(c) for c in completion_ids])
        return [float(len(c) > 1) for c in completion_ids]

    def spy(ctx: Context) -> Any:
        trained.extend(ctx.mask.sum(1).tolist())
        return torch.ones_like(ctx.logps)

    model = tiny_model()
    with torch.no_grad():  # every token is equally likely, the end token too
        model.model.norm.weight.zero_()
    _train(build, model=model, reward=short, method=Method("spy", token_weight=spy), max_completion_length=3)
    assert trained.count(1) == drawn[0].count(1) > 0
    assert sorted(trained) == sorted(drawn[0])


@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo", "bnpo", "cispo"])
def test_masked_truncated_completions_leave_numerator_and_denominator(build: Build, loss: str) -> None:
    config = {"loss_type": loss, "epsilon_high": 5.0, "mask_truncated_completions": True, "max_completion_length": 6}
    runs = [history(_train(build, stock=stock, max_steps=2, **config), "loss", "grad_norm") for stock in (True, False)]
    for found, stock in zip(*reversed(runs), strict=True):
        assert found == pytest.approx(stock, rel=1e-6, abs=1e-6)
    trainer = _train(build, **config)
    cut, left_out = history(trainer, "completions/clipped_ratio", "rows_left_out")[0]
    assert left_out >= cut > 0.3


def test_a_fully_masked_batch_gives_zero(build: Build) -> None:
    config = {"mask_truncated_completions": True, "generation_kwargs": {"suppress_tokens": [0, 2]}}
    for skip in (True, False):
        trainer = _train(build, model=tiny_model(), named={"skip_zero_advantage": skip}, **config)
        assert history(trainer, "loss", "grad_norm", "completions/clipped_ratio", "trained_tokens") == [(0, 0, 1, 0)]


# ---- adapters


def _lora(**options: Any) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=2, target_modules=["q_proj", "v_proj"], **options)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_move_with_and_without_gradient_checkpointing(build: Build, checkpointing: bool) -> None:
    trainer = build(named={"peft_config": _lora()}, gradient_checkpointing=checkpointing, max_steps=2)
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    moved = {n for n, p in trainer.model.named_parameters() if p.requires_grad and not torch.equal(p, before[n])}
    assert moved == set(before) and trainer.state.global_step == 2


def test_kl_is_zero_at_the_start_for_a_new_and_for_a_trained_adapter(build: Build) -> None:
    from peft import get_peft_model

    trained = get_peft_model(tiny_model(), _lora(init_lora_weights=False))
    for options in ({"named": {"peft_config": _lora()}}, {"model": trained}):
        trainer = _train(build, beta=0.1, max_steps=2, **options)
        assert history(trainer, "kl")[0][0] == pytest.approx(0, abs=1e-6)


def test_an_adapter_that_does_not_move_is_an_error(build: Build) -> None:
    trainer = build(named={"peft_config": _lora()}, max_steps=1)
    broken = trainer.model.base_model.model.model.layers[1].self_attn.q_proj
    broken.register_forward_hook(lambda module, args, out: out.detach())
    with pytest.raises(ValueError, match=r"1 of 4 adapters did not move in step 1.*layers\.1\.self_attn\.q_proj"):
        trainer.train()


def test_warm_up_from_zero_and_steps_without_gradient_do_not_count_as_standing_still(build: Build) -> None:
    config = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2, "max_steps": 3}
    assert _train(build, named={"peft_config": _lora()}, **config).state.global_step == 3

    def flat_then_graded(completions: Sequence[Any], trainer_state: Any, **columns: Any) -> Any:
        return [float(trainer_state.global_step > 0) * r for r in length_reward(completions)]

    trainer = _train(build, named={"peft_config": _lora()}, reward=flat_then_graded, max_steps=2)
    assert [norm > 0 for (norm,) in history(trainer, "grad_norm")] == [False, True]


def test_a_model_without_trainable_parameters_is_refused(build: Build) -> None:
    from peft import get_peft_model

    model = get_peft_model(tiny_model(), _lora())
    model.requires_grad_(False)
    with pytest.raises(ValueError, match=r"No parameter of the model is trainable.*is_trainable=True"):
        build(model=model)

"""Settings: precedence, origins, and errors that name the near or nearest valid value."""

import pytest

from rlkit.method import Method, get_method
from rlkit.presets import get_preset
from rlkit.settings import resolve, trl_options

TINY = get_preset("tiny")
PLAIN = Method("plain")
PLUS_ONE = Method(
    "plus_one",
    config={"num_generations": lambda s: s["num_generations"] + 1, "loss_type": "dr_grpo"},
    options={"scale": "none"},
)


def test_call_beats_method_beats_task_beats_preset():
    settings = resolve(PLUS_ONE, TINY, {"temperature": 0.7, "loss_type": "bnpo"}, {"max_steps": 7})
    assert (settings["temperature"], settings.origin["temperature"]) == (0.7, "task")
    assert (settings["loss_type"], settings.origin["loss_type"]) == ("dr_grpo", "method")
    assert (settings["max_steps"], settings.origin["max_steps"]) == (7, "call")
    assert settings.origin["learning_rate"] == "preset"
    assert resolve(PLUS_ONE, TINY, {}, {"loss_type": "grpo"})["loss_type"] == "grpo"


def test_a_derived_setting_follows_the_call_and_the_batch_follows_the_group():
    settings = resolve(PLUS_ONE, TINY, {}, {"num_generations": 2, "prompts_per_step": 32})
    assert settings["num_generations"] == 3
    assert settings.origin["num_generations"] == "method, from call"
    assert settings["per_device_train_batch_size"] == 96


def test_prompts_per_step_stay_equal_between_arms():
    for method in (PLAIN, PLUS_ONE):
        settings = resolve(method, TINY, {}, {"gradient_accumulation_steps": 4})
        rows = settings["per_device_train_batch_size"] * 4
        assert rows // settings["num_generations"] == TINY.settings["prompts_per_step"]


def test_options_and_trl_config_are_told_apart():
    settings = resolve(PLUS_ONE, TINY, {}, {"scale": "mad"})
    assert settings.options == {"scale": "mad"}
    assert set(settings.config) <= set(trl_options())
    assert "prompts_per_step" not in settings.config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"learning_rte": 1e-4}, "learning_rate"),
        ({"scal": "mad"}, "scale"),
        ({"seed": 1}, "seed="),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"max_steps": 1.5}, "max_steps"),
        ({"num_generations": 0}, "smallest group is 2"),
        ({"prompts_per_step": 0}, "at least 1"),
        ({"prompts_per_step": 4, "per_device_train_batch_size": 8}, "not both"),
        ({"prompts_per_step": 3, "num_generations": 2, "gradient_accumulation_steps": 4}, "2 or 4"),
    ],
)
def test_bad_settings_name_the_cause_and_the_fix(overrides, message):
    with pytest.raises(ValueError, match=message):
        resolve(PLUS_ONE if "scal" in overrides else PLAIN, TINY, {}, overrides)


def test_a_number_written_as_text_is_coerced_to_the_settings_type():
    assert resolve(PLAIN, TINY, {}, {"learning_rate": "1e-5"})["learning_rate"] == 1e-5


def test_settings_print_every_value_with_its_origin():
    text = repr(resolve(PLUS_ONE, TINY, {}, {"num_generations": 4}))
    assert "method, from call" in text
    assert len(text.splitlines()) == len(resolve(PLUS_ONE, TINY, {}, {}))


def test_unknown_preset_and_method_list_near_names():
    with pytest.raises(ValueError, match="tiny"):
        get_preset("tiney")
    with pytest.raises(KeyError, match="There is no method"):
        get_method("grpoo")
    with pytest.raises(ValueError, match="scale"):
        PLUS_ONE.with_options(scales=1)


def test_rows_that_do_not_divide_name_the_nearest_valid_values():
    import rlkit

    with pytest.raises(ValueError, match="Nearest batches: 8 or 12"):
        rlkit.trainer("grpo", per_device_train_batch_size=10, num_generations=4)
    with pytest.raises(ValueError, match="odd number"):
        rlkit.trainer("mc_grpo", extra=0, num_generations=4, max_steps=1, preset="smoke").train()

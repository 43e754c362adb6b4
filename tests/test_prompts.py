"""Where prompts become what the model is given."""

from __future__ import annotations

import pytest
from datasets import Dataset

from rlkit.prompts import for_model, stop_ids, token_ids, turn_end
from tests import tiny

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}={% else %}-{% endif %}{{ m['content'] }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}-{% endif %}"
)
"""As those of instruct models: a start token once, a mark for each speaker, an end token for each turn."""


def instruct(**special):
    tokenizer = tiny.tiny_tokenizer(**special)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def rows(*prompts):
    return Dataset.from_dict({"prompt": list(prompts), "gold": ["1"] * len(prompts)})


def test_a_base_model_gets_texts_as_they_are():
    data = rows("1+1?", "2+2?")
    assert for_model(data, tiny.tiny_tokenizer()) is data


def test_an_instruct_model_gets_bare_texts_as_the_user_s_message():
    made = for_model(rows("1+1?"), instruct())
    assert made["prompt"] == [[{"role": "user", "content": "1+1?"}]]
    assert made["gold"] == ["1"]


def test_bare_texts_can_be_refused_or_kept():
    with pytest.raises(ValueError, match=r"2 prompts .the first is row 0.*bare texts"):
        for_model(rows("1", "2"), instruct(), bare="refuse")
    data = rows("1")
    assert for_model(data, instruct(), bare="keep") is data
    with pytest.raises(ValueError, match="bare is one of"):
        for_model(data, instruct(), bare="drop")


def test_a_template_applied_by_hand_is_refused():
    for prompt in ("<s>=1+1?</s>-", [{"role": "user", "content": "<s>1+1?"}]):
        with pytest.raises(ValueError, match="row 0: hold special tokens"):
            for_model(rows(prompt), instruct())
    with pytest.raises(ValueError, match="special tokens"):
        for_model(rows("<s>1+1?"), tiny.tiny_tokenizer())


def test_messages_for_a_model_without_template_are_refused():
    with pytest.raises(ValueError, match="no chat template"):
        for_model(rows([{"role": "user", "content": "1"}]), tiny.tiny_tokenizer())


def test_there_is_exactly_one_start_token_and_the_template_is_applied_once():
    tokenizer = instruct()
    (ids,) = token_ids(for_model(rows("1+1?"), tokenizer)["prompt"], tokenizer)
    assert tokenizer.decode(ids) == "<s>=1+1?</s>-"
    (ids,) = token_ids(["1+1?"], tiny.tiny_tokenizer())
    assert ids.count(1) == 1


def test_the_template_s_end_and_every_stop_token_are_known():
    tokenizer = instruct(eos_token="#")
    model = tiny.tiny_model()
    model.generation_config.eos_token_id = [2, 5]
    assert stop_ids(model, tokenizer) == {2, 5, tokenizer.convert_tokens_to_ids("#")}
    assert turn_end(tokenizer) == tokenizer.convert_tokens_to_ids("#")
    assert turn_end(tiny.tiny_tokenizer()) is None


def test_a_trainer_wraps_trains_and_stops_at_each_end_token(tmp_path, one_thread):
    """Through `rlkit.trainer`: an instruct model, bare texts, two end tokens."""
    import rlkit

    tokenizer, model = instruct(), tiny.tiny_model()
    model.generation_config.eos_token_id = [2, tokenizer.convert_tokens_to_ids("#")]
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    seen = []

    def reward(prompts, completions, completion_ids, **columns):
        seen.extend(zip(prompts, completions, completion_ids, strict=True))
        return [float(len(ids)) for ids in completion_ids]

    trainer = rlkit.trainer(
        "grpo", model=str(tmp_path / "model"), task=tiny.tiny_data(), reward=reward, preset="smoke",
        output_dir=str(tmp_path), max_completion_length=24, max_steps=2,
    )  # fmt: skip
    trainer.train()
    assert all(prompt[0]["role"] == "user" for prompt, _, _ in seen)
    assert all(completion[0]["role"] == "assistant" for _, completion, _ in seen)
    ends = {ids[-1] for _, _, ids in seen if len(ids) < 24}
    assert ends == {2, tokenizer.convert_tokens_to_ids("#")}
    assert trainer.state.log_history[0]["grad_norm"] > 0

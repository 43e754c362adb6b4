"""The doctor finds what would make a run useless."""

from __future__ import annotations

import json

import pytest
from datasets import Dataset, DatasetDict
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.doctor import Check, Report, columns_of, diagnose, machine
from rlkit.tasks.data import from_data
from tests import tiny
from tests.test_prompts import instruct


def states(report):
    return {check.name: check.state for check in report.checks}


def rows(golds, prompts=None):
    return Dataset.from_dict({"prompt": prompts or [f"{i}+1?" for i in range(len(golds))], "gold": golds})


def test_a_good_task_and_its_base_are_green(one_thread):
    report = diagnose("chain", rows=100)
    assert report.exit_code == 0
    for name in ("golds", "duplicates", "contradictions", "reward", "form", "start token", "stop token", "variance"):
        assert states(report)[name] == "green"
    assert set(states(report).values()) <= {"green", "yellow"}


def test_without_a_model_its_checks_are_skipped():
    pytest.importorskip("reasoning_gym")
    report = diagnose("gsm_symbolic", rows=100)
    assert (report.exit_code, states(report)["model"]) == (0, "skipped")


def test_golds_that_cannot_be_graded_are_named():
    """A gold whose brace is never closed, an empty one, and words."""
    report = diagnose(from_data(rows(["1", r"\frac{1}{2", "", "even", *map(str, range(3, 20))])))
    found = {check.name: check for check in report.checks}
    assert (found["golds"].state, found["golds"].rows) == ("red", ["row 2"])
    assert (found["empty golds"].state, found["empty golds"].rows) == ("red", ["row 3"])
    assert "row 4" in found["text golds"].rows
    assert report.exit_code == 1
    assert "row 2" in report.text()


def test_duplicates_across_splits_are_named():
    parts = DatasetDict({"train": rows(["1", "2"], ["a  b", "c"]), "test": rows(["1"], ["A b"])})
    report = diagnose(from_data(parts))
    found = next(check for check in report.checks if check.name == "duplicates")
    assert (found.state, found.rows) == ("red", ["train row 1 = test row 1"])


def test_two_golds_for_one_prompt_are_a_contradiction():
    report = diagnose(from_data(rows(["4", "4.0", "5", "1", "2"], ["2+2?", "2+2?", "2+2?", "a", "b"])))
    found = next(check for check in report.checks if check.name == "contradictions")
    assert (found.state, found.rows) == ("red", ["row 3"])


def test_a_constant_answer_that_scores_is_shown():
    report = diagnose(from_data(rows(["1"] * 20 + ["2"] * 10)))
    found = next(check for check in report.checks if check.name == "constant")
    assert found.state == "yellow" and "'1'" in found.found


def saved(tmp_path, tokenizer, model):
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def test_a_template_whose_turn_never_ends_is_red(tmp_path, one_thread):
    tokenizer, model = instruct(), tiny.tiny_model()
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ eos_token }}", "#")
    found = states(diagnose(from_data(rows([str(i) for i in range(12)])), saved(tmp_path, tokenizer, model)))
    assert found["stop token"] == "red"
    assert "variance" not in found  # nothing is sampled from what cannot work


def test_prompts_that_do_not_fit_and_templates_by_hand_are_red(tmp_path, one_thread):
    where = saved(tmp_path, instruct(), tiny.tiny_model(context=300))
    long = rows([str(i) for i in range(12)], [f"{i}+" * 60 for i in range(12)])
    assert states(diagnose(from_data(long), where))["length"] == "red"
    by_hand = rows([str(i) for i in range(12)], [f"<s>={i}</s>-" for i in range(12)])
    assert states(diagnose(from_data(by_hand), where))["form"] == "red"


def test_groups_without_variance_and_runs_without_an_end_are_red(tmp_path, one_thread):
    model = tiny.tiny_model(context=600)
    model.generation_config.suppress_tokens = [2]
    report = diagnose(from_data(rows([str(i) for i in range(100, 112)])), saved(tmp_path, instruct(), model), groups=2)
    assert (states(report)["endings"], states(report)["variance"]) == ("red", "red")


def test_counts_out_of_range_are_refused():
    with pytest.raises(ValueError, match="group_size at 2"):
        diagnose("chain", group_size=1)


def test_a_state_must_be_known():
    with pytest.raises(ValueError, match="green, yellow, red, skipped"):
        Check("a", "fine", "")


def test_text_names_ten_rows_and_json_all():
    report = Report([Check("golds", "red", "wrong", "fix it", [str(i) for i in range(30)])])
    assert "and 20 more" in report.text() and "fix: fix it" in report.text()
    assert json.loads(report.json())["checks"][0]["rows"] == [str(i) for i in range(30)]


def test_columns():
    assert columns_of(["prompt=q", "gold=a"]) == {"prompt": "q", "gold": "a"}
    with pytest.raises(ValueError, match="Did you mean 'prompt'"):
        columns_of(["promt=q"])


# --- the command ---------------------------------------------------------------------------------------------------


def call(*arguments):
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def test_the_command_checks_a_task_and_own_data(tmp_path, one_thread):
    done = call("--task", "chain", "--rows", 50, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["exit_code"] == 0
    path = tmp_path / "mine.jsonl"
    lines = [{"q": f"{i}?", "a": str(i)} for i in range(10)] + [{"q": "x", "a": ""}]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = call("--data", path, "--column", "prompt=q", "--column", "gold=a")
    assert done.exit_code == 1 and "row 11" in done.stdout


def test_the_command_says_what_is_wrong_in_a_line():
    assert call().exit_code == 2
    assert call("--task", "chain", "--data", "x.csv").exit_code == 2
    done = call("--task", "chian")
    assert done.exit_code == 1 and "Did you mean 'chain'" in done.output and "Traceback" not in done.output


def test_the_machine(one_thread):
    done = call("--machine", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert set(checks) >= {"python", "libraries", "memory", "threads", "runs", "gpu", "4-bit", "grading", "step"}
    assert all(check["fix"] for check in checks.values() if check["state"] == "red")


def test_a_broken_part_of_the_machine_is_red_and_the_rest_is_looked_at(monkeypatch):
    def broken():
        raise OSError("no such library")

    monkeypatch.setattr(machine, "LOOKS", {"4-bit": broken, "python": machine.LOOKS["python"]})
    report = machine.inspect()
    assert states(report) == {"4-bit": "red", "python": "green"}
    assert report.exit_code == 1

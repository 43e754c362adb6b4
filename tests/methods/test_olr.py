"""OLR: majorities, slopes, and when a label is replaced."""

import pytest

from rlkit.methods import olr


def test_answers_are_what_follows_the_last_sign():
    texts = {"1+1=2#2": "2", "#02": "2", "#-7 ": "-7", "#1#3": "3", "#x": "x", "2": None, "#": None, "": None}
    assert {text: olr.final_answer(text) for text in texts} == texts


def test_a_tie_for_the_first_place_is_no_majority():
    assert olr.plurality(["a", "b", "a"]) == "a"
    assert olr.plurality(["a", "b", "a", "b", "c"]) is None
    assert olr.plurality(["a", None, None]) == "a"
    assert olr.plurality([None, None]) is None
    assert olr.plurality([]) is None


def test_a_visit_is_the_majority_and_its_share_of_all_rollouts():
    assert olr.visit(["7", "7", None, "8"]) == ("7", 0.5)
    assert olr.visit(["7", "8"]) == (None, 0.0)
    assert olr.visit([None]) == (None, 0.0)


def test_slope_of_hand_computed_shares():
    assert olr.slope([0.25, 0.375, 0.5, 0.5, 0.75]) == pytest.approx(0.1125)
    assert olr.slope([0.5, 0.5, 0.5]) == 0
    assert olr.slope([0.5]) == 0
    assert olr.slope([]) == 0


def test_a_label_is_replaced_where_the_majority_is_stable_and_grows():
    def label(majorities, shares=(0.25, 0.375, 0.5, 0.5, 0.75)):
        return olr.refined_label("9", list(zip(majorities, shares, strict=False)), start=4, least=0.05)

    assert label(["7"] * 5) == "7"
    assert label(["7"] * 4) == "9"  # too early
    assert label(["8", "8", "8", "7", "7"]) == "9"  # another majority before
    assert label(["7"] * 4 + [None]) == "9"  # no majority now
    assert label(["7"] * 5, [0.5] * 5) == "9"  # flat: never corrected
    assert label(["7"] * 5, [0.75, 0.75, 0.75, 0.75, 0.9]) == "9"  # slope .03


def _visit(reward, votes, gold="9", **more):
    texts = [f"#{vote}" if vote else "" for vote in votes]
    n = len(votes)
    return reward(prompts=["p"] * n, completions=texts, gold=[gold] * n, id=["train/p"] * n, **more)


def test_rewards_follow_the_given_label_first_and_the_refined_one_later():
    reward = olr.Labels()
    growing = [["7", "8", "6", "5"], ["7", "7", "9", "8"], ["7", "7", "9", None], ["7", "7", "7", "9"], ["7"] * 4]
    found = [_visit(reward, votes, options={"refine": True, "start": 3, "slope": 0.05}) for votes in growing]
    assert found[1] == [0, 0, 1, 0]
    assert found[3] == [1, 1, 1, 0]
    assert found[4] == [1, 1, 1, 1]
    assert _visit(olr.Labels(), growing[3], options={**olr.OPTIONS, "refine": False}) == [0, 0, 0, 1]


def test_a_look_without_learning_leaves_no_trace():
    reward = olr.Labels()
    _visit(reward, ["7", "9"], learn=False)
    assert reward.history == {}
    _visit(reward, ["7", "7"])
    assert reward.history["train/p"] == [("7", 1.0)]


def test_chats_and_prompts_without_id():
    chat = [[{"role": "assistant", "content": "#9"}]]
    assert olr.Labels()(prompts=[[{"role": "user", "content": "?"}]], completions=chat, gold=["09"]) == [1.0]


def test_memory_comes_back():
    reward, back = olr.Labels(), olr.Labels()
    _visit(reward, ["7", "7"])
    back.load_state_dict(reward.state_dict())
    _visit(reward, ["7", "8"])
    assert back.history == {"train/p": [("7", 1.0)]}

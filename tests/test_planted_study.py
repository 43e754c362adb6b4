"""What selectors keep of planted roles, and which roles the gradient comes from, on the committed bases."""

from __future__ import annotations

import pytest

from rlkit.methods import tip
from rlkit.planted_study import gradient_by_role, kept_by_role, token_table
from rlkit.tasks.planted import ROLES, roles


def test_entropy_is_blind_to_carries_and_q3_is_not() -> None:
    found = kept_by_role({"tip_entropy": [0.15], "tip_q3": [0.15, 0.08]}, rollouts=64, batches=2)
    shares = found.groupby(["selector", "retention", "batch"])["share"].sum()
    assert shares.tolist() == [pytest.approx(1.0)] * len(shares)
    recall = found.groupby(["selector", "retention", "role"])["recall"].mean()
    assert recall["tip_entropy", 0.15, "carry"] < 0.05
    assert recall["tip_entropy", 0.15, "checksum"] > 0.95
    assert recall["tip_q3", 0.15, "carry"] > 0.9
    assert recall["tip_q3", 0.08, "checksum"] < 0.05


def test_the_table_has_a_row_a_token_in_the_order_of_the_rollout() -> None:
    table = token_table({"tip": 0.5, "tip_random": 0.15}, rollouts=8)
    assert set(table["role"]) <= set(ROLES)
    for _, part in table.groupby("rollout"):
        assert part["position"].tolist() == list(range(len(part)))
        assert part["tip"].sum() == max(1, len(part) // 2)
        digits = part["token"].tolist()
        prompt = f"{digits[4]}{digits[0]}+{digits[5]}{digits[1]}="  # the copied digits are the problem
        if all(text.isdigit() for text in (*digits[:2], *digits[4:6])):
            assert part["role"].tolist() == roles(prompt, len(part))
    assert table["entropy"].between(0, 1).all()
    assert (table.groupby("rollout")["tip_random"].sum() == 2).all()
    carry = table[table["role"] == "carry"]
    assert (carry["divergence"] > 1).mean() > 0.7
    quadrant = tip.quadrants  # the cuts of the notebook are the function's defaults
    assert quadrant.__defaults__ == (0.2, 0.5)


def test_the_gradient_of_reverse_kl_vanishes_for_the_collapsed_student_only() -> None:
    norm = {
        model: gradient_by_role(model=model, rollouts=64).set_index(["role", "direction"])["norm"]
        for model in ("planted_student", "planted_collapsed")
    }
    assert norm["planted_collapsed"]["carry", "reverse"] < 0.05 * norm["planted_student"]["carry", "reverse"]
    assert norm["planted_collapsed"]["carry", "forward"] > 0.3 * norm["planted_student"]["carry", "forward"]

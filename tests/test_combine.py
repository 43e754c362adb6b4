"""Methods on different seams in one."""

from __future__ import annotations

from typing import Any

import pytest

import rlkit
from rlkit.method import Method, get_method


def _seam(*given: Any) -> Any:
    return None


ONE = Method("one", summary="first", paper="1", advantage=_seam, options={"a": 1}, config={"loss_type": "grpo"})
TWO = Method(
    "two", paper="2", batch=_seam, options={"b": 2}, reduces_to={"b": 0}, needs=frozenset({"logps"}), callbacks=(_seam,)
)


def test_each_keeps_its_seams_and_options() -> None:
    both = Method.combine(ONE, TWO)
    assert (both.name, both.paper, both.summary) == ("one+two", "1, 2", "first, with two")
    assert both.advantage is _seam and both.batch is _seam and both.surrogate is None
    assert both.options == {"a": 1, "b": 2} and both.config == {"loss_type": "grpo"}
    assert both.needs == {"logps"} and both.callbacks == (_seam,) and not both.pooled
    assert Method.combine(ONE, Method("pool", pooled=True, token_weight=_seam), name="mine").pooled


def test_where_the_others_are_off_it_is_the_first() -> None:
    both = Method.combine(ONE, TWO)
    assert both.parent == "one" and both.reduces_to == {"b": 0}
    other_way = Method.combine(TWO, ONE)
    assert other_way.reduces_to is None and other_way.no_reduction


def test_one_seam_cannot_have_two_methods() -> None:
    with pytest.raises(ValueError, match="Methods 'mc_grpo' and 'rloo' set the same seam 'advantage', so they cannot"):
        Method.combine("mc_grpo", "rloo")
    with pytest.raises(ValueError, match="'one' and 'uno' set the same seam 'advantage'"):
        Method.combine(ONE, TWO, Method("uno", advantage=_seam))


def test_one_option_cannot_have_two_values() -> None:
    with pytest.raises(ValueError, match="'one' and 'three' set the option 'a' to 1 and 5"):
        Method.combine(ONE, Method("three", sampler=_seam, options={"a": 5}))
    with pytest.raises(ValueError, match="'one' and 'four' set the TRL option 'loss_type' to 'grpo' and 'dapo'"):
        Method.combine(ONE, Method("four", sampler=_seam, config={"loss_type": "dapo"}))
    assert Method.combine(ONE, Method("five", sampler=_seam, options={"a": 1})).options == {"a": 1}
    with pytest.raises(ValueError, match="run on one trainer"):
        Method.combine(ONE, Method("far", trainer="distill", divergence=_seam))


def test_names_joined_by_a_plus_mean_the_same() -> None:
    assert get_method("dr_grpo+grpo").config == rlkit.catalog()["dr_grpo"].config
    assert get_method("mc_grpo + grpo").advantage is rlkit.catalog()["mc_grpo"].advantage
    with pytest.raises(KeyError, match="no method 'mc_grp'"):
        get_method("mc_grp+grpo")

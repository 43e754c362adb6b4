"""Calls that end, whatever they do."""

from __future__ import annotations

import time

import pytest

from rlkit.grading.bounded import Bounded


def prepare():
    pass


def act(what, value):
    """What a worker is told to do."""
    if what == "sleep":
        time.sleep(value)
    if what == "fill":
        held = []
        while True:
            held.append(bytearray(50 * 2**20))
    if what == "fail":
        raise KeyError(value)
    if what == "exit":
        import os

        os._exit(value)
    return value


@pytest.fixture(scope="module")
def bounded():
    made = Bounded(act, prepare, workers=2, megabytes=300)
    yield made
    made.stop()


def test_results_come_in_order(bounded):
    assert list(bounded.map([("sleep", 0.2), ("say", 1), ("say", 2)], 5)) == [0.2, 1, 2]


def test_a_call_that_takes_too_long_gives_none(bounded):
    list(bounded.map([("say", 0)], 5))
    started = time.perf_counter()
    assert list(bounded.map([("sleep", 30), ("say", 1)], 0.5)) == [None, 1]
    assert time.perf_counter() - started < 2


def test_a_call_that_takes_too_much_memory_gives_none(bounded):
    assert list(bounded.map([("fill", 0), ("say", 1)], 10)) == [None, 1]


def test_a_worker_that_ends_itself_gives_none(bounded):
    assert list(bounded.map([("exit", 3), ("say", 1)], 5)) == [None, 1]


def test_an_error_of_the_function_is_raised(bounded):
    with pytest.raises(RuntimeError, match=r"KeyError\('wrong'\)"):
        list(bounded.map([("fail", "wrong")], 5))
    assert list(bounded.map([("say", 1)], 5)) == [1]


def test_it_starts_again_after_a_stop(bounded):
    bounded.stop()
    assert list(bounded.map([("say", 1)], 5)) == [1]
    assert list(bounded.map([], 5)) == []

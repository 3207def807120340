"""A quick test takes at most two seconds, or says why."""

from __future__ import annotations

import pytest

from tests.durations import LIMIT, kept


def test_a_quick_test_that_takes_long_says_why(request: pytest.FixtureRequest) -> None:
    """By `durations.json`, since the clock of a busy machine proves nothing."""
    _, seconds = kept()
    long = {
        item.nodeid: seconds[item.nodeid]
        for item in request.session.items
        if seconds.get(item.nodeid, 0.0) > LIMIT and not item.get_closest_marker("slow")
    }
    reasons = {item.nodeid: mark.args for item in request.session.items for mark in item.iter_markers("takes")}
    assert not [f"{test} takes {took} s" for test, took in long.items() if not any(reasons.get(test, ()))]


def test_what_is_kept_is_of_tests_that_there_are(request: pytest.FixtureRequest) -> None:
    """A renamed test needs its duration measured again: `make durations`."""
    collected = {item.nodeid for item in request.session.items}
    files = {test.partition("::")[0] for test in collected}
    _, seconds = kept()
    assert not [test for test in seconds if test.partition("::")[0] in files and test not in collected]

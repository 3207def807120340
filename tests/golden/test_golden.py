"""Results that must not move: to the bit where the recording's conditions hold, elsewhere within a tolerance.

The figures were recorded by `python -m tests.golden.recording` before the seams of the engine were rebuilt. A change
that must move one says which and why in its commit.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.golden.recording import RECORDED, conditions, outcome
from tests.golden.scenarios import golden_scenarios

TOLERANCE = 2e-3
"""Relative, between processors and versions of PyTorch, after the few rounds that these scenarios take."""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RECORDED.read_text())
    return content


def test_every_golden_scenario_is_recorded(recorded: dict[str, Any]) -> None:
    assert list(recorded["outcomes"]) == list(golden_scenarios())


@pytest.mark.parametrize("name", golden_scenarios())
def test_a_golden_scenario_gives_what_it_gave(name: str, recorded: dict[str, Any]) -> None:
    expected, now = recorded["outcomes"][name], outcome(golden_scenarios()[name])
    columns = expected["metrics"][0].keys()  # those that came later are not in the recording
    now["metrics"] = [{column: row[column] for column in columns} for row in now["metrics"]]
    if conditions() == recorded["conditions"]:
        assert now["metrics"] == expected["metrics"]
        assert now["sha256"] == expected["sha256"]
        return
    assert now["values"].keys() == expected["values"].keys()
    for tensor, values in expected["values"].items():
        assert now["values"][tensor] == pytest.approx(values, rel=TOLERANCE, abs=TOLERANCE)
    for row, before in zip(now["metrics"], expected["metrics"], strict=True):
        assert row == pytest.approx(before, rel=20 * TOLERANCE, abs=0.02)

"""How long phases last: `rounds`, or `until` a round of the whole scenario."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config import load_scenario
from rayfl.errors import ScenarioError


def tables(*lengths: dict[str, Any]) -> dict[str, Any]:
    phases = [{"name": f"p{number}", "cohort": 1, **length} for number, length in enumerate(lengths)]
    return {"data": {"name": "femnist"}, "model": "lenet5", "phases": phases}


def rounds(*lengths: dict[str, Any], overrides: Any = ()) -> dict[str, int]:
    return {phase.name: phase.rounds for phase in load_scenario(tables(*lengths), overrides).phases}


def test_until_counts_the_rounds_of_all_phases_before() -> None:
    assert rounds({"rounds": 3}, {"until": 10}, {"rounds": 2}, {"until": 13}) == {"p0": 3, "p1": 7, "p2": 2, "p3": 1}


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.data())
def test_rounds_and_until_say_the_same(lengths: list[int], data: st.DataObject) -> None:
    ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
    written = [
        {"rounds": length} if data.draw(st.booleans()) else {"until": end}
        for length, end in zip(lengths, ends, strict=True)
    ]
    assert list(rounds(*written).values()) == lengths


def test_a_phase_of_no_rounds_is_as_if_it_were_not_there() -> None:
    without = load_scenario(tables({"rounds": 3}, {"until": 10}), ["phases.p0.rounds=0"])
    alone = tables({"until": 10})
    alone["phases"][0]["name"] = "p1"
    assert without == load_scenario(alone)
    assert load_scenario("femnist_cyclic", ["phases.cyclic.rounds=0"]).phases == load_scenario("femnist_fedavg").phases


def test_until_is_not_written_out() -> None:
    assert "until" not in load_scenario(tables({"until": 3})).to_toml()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["phases.p1.rounds=2"], {"p0": 3, "p1": 2}),
        (["phases.p0.until=5"], {"p0": 5, "p1": 5}),
        (["phases.0.until=5", "phases.1.rounds=1"], {"p0": 5, "p1": 1}),
        (["phases.p1.rounds=2", "phases.p1.until=4"], {"p0": 3, "p1": 1}),
        (["phases.p1.until=4", "phases.p1.rounds=2"], {"p0": 3, "p1": 2}),
        ({"phases": {"p1": {"rounds": 2}}}, {"p0": 3, "p1": 2}),
    ],
)
def test_of_rounds_and_until_the_last_one_given_wins(overrides: Any, expected: dict[str, int]) -> None:
    assert rounds({"rounds": 3}, {"until": 10}, overrides=overrides) == expected


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([{}], "phases.p0: give either rounds, the number of rounds, or until, the phase's last round"),
        ([{"rounds": 3, "until": 3}], "phases.p0: give either rounds"),
        ([{"rounds": 3}, {"until": 3}], "phases: 'p1' has until = 3, but the phases before it already have 3 rounds$"),
        ([{"rounds": 0}, {"rounds": 0}], "phases: none of them has any rounds$"),
    ],
)
def test_errors_name_values_that_do_not_fit(lengths: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        rounds(*lengths)

"""The values of `data.classes` and `data.owners`."""

from __future__ import annotations

from typing import Any

import pytest

from rayfl.config import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError


def scenario(overrides: list[str], **data: Any) -> Scenario:
    tables = {
        "data": {"name": "tests.user_code:vectors", "clients": 4, **data},
        "model": "tests.user_code:Linear",
        "phases": [{"name": "federated", "rounds": 1, "cohort": 2}],
    }
    return load_scenario(tables, overrides)


def test_ranges_are_half_open_and_counted() -> None:
    classes = scenario([], classes={"places": [[80, 90], [0, 10]]}).data.classes
    assert classes is not None
    assert (classes.number, classes.end, classes.order_seed, classes.draw) == (20, 90, 0, None)


def test_a_base_and_the_command_line_change_single_keys() -> None:
    classes = {"places": [[0, 9]], "draw": 5}
    data = scenario(["data.classes.places=[[2, 8]]", "data.owners.places=[[0,3]]"], classes=classes).data
    assert data.classes is not None
    assert data.owners is not None
    assert (data.classes.places, data.classes.draw) == (((2, 8),), 5)
    assert data.owners.places == ((0, 3),)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"classes": {}}, r"data\.classes\.places: "),
        ({"classes": {"places": []}}, r"data\.classes\.places: "),
        ({"classes": {"places": [[1, 2, 3]]}}, r"data\.classes\.places\.0"),
        ({"classes": {"places": [[-1, 2]]}}, r"data\.classes\.places\.0\.0: "),
        ({"classes": {"places": [[4, 4]]}}, r"data\.classes: places: the range \[4, 4\] is empty"),
        ({"classes": {"places": [[4, 2]]}}, r"data\.classes: places: the range \[4, 2\] is empty"),
        ({"classes": {"places": [[5, 9], [0, 6]]}}, r"places: the ranges \[0, 6\] and \[5, 9\] overlap"),
        ({"classes": {"places": [[0, 4]], "draw": 5}}, r"draw: 5 classes cannot be drawn from 4 places"),
        ({"classes": {"places": [[0, 4]], "draw": 0}}, r"data\.classes\.draw: "),
        ({"classes": {"places": [[0, 4]], "order_seed": -1}}, r"data\.classes\.order_seed: "),
        ({"owners": {"places": [[0, 4]], "of": 3}}, r"data\.owners: places: the last range ends at 4, beyond of = 3"),
        ({"owners": {"places": [[0, 4]]}, "partition": "iid"}, r"data\.owners: has no effect with partition 'iid'"),
    ],
)
def test_nonsense_is_rejected_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as raised:
        scenario([], **given)
    assert len(str(raised.value).splitlines()) == 2, "the scenario's name, then one line"

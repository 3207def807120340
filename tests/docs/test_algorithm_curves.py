"""The kept runs and the pictures of the learning curves on the pages of algorithms."""

from __future__ import annotations

import json

import pytest

from tools.algorithm_curves.__main__ import FIGURES, RECORDS
from tools.algorithm_curves.drawing import figure_of
from tools.algorithm_curves.records import is_kept
from tools.algorithm_curves.settings import CURVES, Curve

NAMES = [curve.name for curve in CURVES]


def test_every_curve_has_records_and_there_are_no_others() -> None:
    assert sorted(path.name for path in RECORDS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("curve", CURVES, ids=NAMES)
def test_the_records_are_those_of_the_scenario_on_real_data_and_can_be_drawn(curve: Curve) -> None:
    assert is_kept(curve, RECORDS)
    facts = json.loads((RECORDS / curve.name / "environment.json").read_text(encoding="utf-8"))
    assert (facts["data"]["name"], facts["data"]["source"]) == ("fashion_mnist", "files")
    assert {"rayfl", "torch"} <= facts["packages"].keys()
    assert figure_of(curve, RECORDS).axes[0].lines


def test_there_is_a_small_picture_for_every_curve_and_no_other() -> None:
    pictures = {path.name: path.stat().st_size for path in FIGURES.iterdir()}
    assert set(pictures) == {f"{curve.algorithm}.png" for curve in CURVES}
    assert max(pictures.values()) < 30_000

"""Means over runs whose x may differ."""

from __future__ import annotations

import numpy as np
import pytest

from rayfl.errors import ScenarioError
from rayfl.studies.statistics import Key, series

X = np.array([1.0, 2.0, 4.0])
VALUES = np.random.default_rng(0).random((5, 3))


def test_a_line_is_the_mean_over_repetitions_with_its_band() -> None:
    curves: dict[Key, tuple[np.ndarray, np.ndarray]] = {
        (int(place > 2), place): (X, y) for place, y in enumerate(VALUES)
    }
    found = series(curves, "range")
    by_task = np.stack([VALUES[:3].mean(axis=0), VALUES[3:].mean(axis=0)])
    np.testing.assert_allclose([found.mean, found.low, found.high], [by_task.mean(0), by_task.min(0), by_task.max(0)])
    assert found.repetitions == 2


def test_runs_with_different_x_are_interpolated_where_all_have_values_and_no_farther() -> None:
    one = (np.array([0.0, 2.0, 4.0]), np.array([0.0, 2.0, 4.0]))
    other = (np.array([1.0, 3.0, 9.0]), np.array([10.0, 30.0, 90.0]))
    found = series({(None, 0): one, (None, 1): other}, "range")
    assert found.x.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(found.low, [1, 2, 3, 4])
    np.testing.assert_allclose(found.high, [10, 20, 30, 40])


def test_nothing_is_interpolated_across_a_missing_value() -> None:
    one = (np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, np.nan, 2.0, 3.0]))
    other = (np.array([0.0, 0.5, 3.0]), np.array([0.0, 0.5, 3.0]))
    found = series({(None, 0): one, (None, 1): other}, "std")
    assert found.x.tolist() == [0, 0.5, 1, 2, 3]
    np.testing.assert_allclose(found.mean, [0, np.nan, np.nan, 2, 3])


def test_runs_that_share_no_part_of_the_axis_have_no_mean() -> None:
    with pytest.raises(ScenarioError, match="share no part of this axis"):
        series({(None, 0): (X, VALUES[0]), (None, 1): (X + 9, VALUES[1])}, "std")

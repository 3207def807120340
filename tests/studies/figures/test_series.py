"""Means over runs, and bands around them."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from scipy import stats

from rayfl.errors import ScenarioError
from rayfl.studies.figures.curves import Band, series
from rayfl.studies.grid.results import Key

X = np.array([1.0, 2.0, 4.0])
VALUES = np.random.default_rng(0).random((5, 3))


def of_seeds(*values: np.ndarray) -> dict[Key, tuple[np.ndarray, np.ndarray]]:
    return {(None, seed): (X, y) for seed, y in enumerate(values)}


def test_bands_are_those_of_numpy_and_scipy() -> None:
    found = {band: series(of_seeds(*VALUES), band) for band in get_args(Band)}
    mean, deviation = np.mean(VALUES, 0), np.std(VALUES, 0, ddof=1)
    low, high = stats.t.interval(0.95, 4, loc=mean, scale=stats.sem(VALUES, axis=0))
    expected = {
        "std": (mean - deviation, mean + deviation),
        "range": (VALUES.min(0), VALUES.max(0)),
        "interval": (low, high),
        "none": (mean, mean),
    }
    for band, (lower, upper) in expected.items():
        np.testing.assert_allclose([found[band].mean, found[band].low, found[band].high], [mean, lower, upper])
        assert found[band].repetitions == 5


@pytest.mark.parametrize("band", get_args(Band))
def test_a_single_run_has_no_band(band: Band) -> None:
    found = series(of_seeds(VALUES[0]), band)
    assert np.array_equal([found.mean, found.low, found.high], [VALUES[0]] * 3)


@pytest.mark.parametrize("band", get_args(Band))
def test_seeds_of_a_task_are_averaged_before_the_band_over_tasks(band: Band) -> None:
    by_task = {0: VALUES[:3], 1: VALUES[3:]}
    curves: dict[Key, tuple[np.ndarray, np.ndarray]] = {
        (task, seed): (X, y) for task, found in by_task.items() for seed, y in enumerate(found)
    }
    found, expected = series(curves, band), series(of_seeds(*(y.mean(axis=0) for y in by_task.values())), band)
    np.testing.assert_allclose([found.mean, found.low, found.high], [expected.mean, expected.low, expected.high])
    assert found.repetitions == 2


def test_seeds_of_a_single_task_have_no_band() -> None:
    found = series({(0, seed): (X, y) for seed, y in enumerate(VALUES)}, "std")
    np.testing.assert_allclose([found.mean, found.low, found.high], [VALUES.mean(axis=0)] * 3)


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

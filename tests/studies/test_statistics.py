"""Means, deviations, paired differences, intervals and bands, against independent computation."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rayfl.studies.statistics import Band, Key, mean_and_band, paired_difference, repetitions, summary

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8)


def by_task(values: list[float]) -> dict[Key, float]:
    return {(task, 0): value for task, value in enumerate(values)}


@given(NUMBERS)
def test_mean_and_deviation_are_those_of_numpy(values: list[float]) -> None:
    found = summary(by_task(values))
    assert found is not None
    assert found.deviation is not None
    assert found.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert found.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-6)
    assert found.repetitions == len(values)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (29, 2.045), (120, 1.980)],
)
def test_an_interval_is_as_wide_as_printed_tables_of_the_t_distribution_say(degrees: int, quantile: float) -> None:
    values = [float(value) for value in np.random.default_rng(degrees).normal(70, 5, degrees + 1)]
    found = summary(by_task(values))
    assert found is not None
    standard_error = stats.sem(values)
    assert found.margin == pytest.approx(quantile * standard_error, abs=5e-4 * standard_error)


def test_the_seeds_of_a_task_count_as_one_value() -> None:
    values: dict[Key, float] = {(0, 1): 80, (0, 0): 70, (2, 0): 90, (1, 0): 60, (2, 1): 94}
    assert repetitions(values) == [[70, 80], [60], [90, 94]]
    found = summary(values)
    assert found is not None
    # 75, 60, 92: the mean is 227 / 3
    assert found.mean == pytest.approx(227 / 3)
    assert found.repetitions == 3


def test_without_tasks_every_seed_is_a_value() -> None:
    assert repetitions({(None, 5): "later", (None, 3): "first"}) == [["first"], ["later"]]


def test_a_single_value_has_neither_deviation_nor_interval_and_nothing_has_no_mean() -> None:
    found = summary({(None, 3): 70.0})
    assert found is not None
    assert (found.mean, found.deviation, found.margin) == (70, None, None)
    assert summary({}) is None


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_the_deviation_of_a_value_that_is_not_finite_is_undefined(strange: float) -> None:
    found = summary({(None, 0): 70.0, (None, 1): strange})
    assert found is not None
    assert found.deviation is not None
    assert found.margin is not None
    assert math.isnan(found.deviation)
    assert math.isnan(found.margin)
    np.testing.assert_equal(found.mean, strange)


def test_differences_are_paired_by_task_and_seed_and_averaged_over_seeds() -> None:
    # by task: (3 + 5) / 2 = 4, (1 - 3) / 2 = -1, 6; the mean is 3, the squares sum to 1 + 16 + 9 = 26, so the deviation
    # is the root of 13, and the margin 4.303 sqrt(13 / 3)
    ours: dict[Key, float] = {(0, 0): 73, (0, 1): 85, (1, 0): 61, (1, 1): 67, (2, 0): 96, (2, 1): 1}
    theirs: dict[Key, float] = {(0, 0): 70, (0, 1): 80, (1, 0): 60, (1, 1): 70, (2, 0): 90, (3, 0): 5}
    found = paired_difference(ours, theirs)
    assert found is not None
    assert found.repetitions == 3
    assert found.mean == pytest.approx(3.0)
    assert found.margin == pytest.approx(4.30265 * math.sqrt(13 / 3), rel=1e-5)


def test_the_interval_of_a_paired_difference_is_that_of_scipys_paired_test() -> None:
    ours, theirs = np.random.default_rng(2).normal(70, 5, (2, 7)).tolist()
    found = paired_difference(by_task(ours), by_task(theirs))
    assert found is not None
    assert found.margin is not None
    by_scipy = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found.mean - found.margin == pytest.approx(by_scipy.low)
    assert found.mean + found.margin == pytest.approx(by_scipy.high)


def test_runs_without_a_counterpart_have_no_difference() -> None:
    assert paired_difference({(0, 0): 73.0}, {(0, 1): 70.0}) is None


def test_a_95_percent_interval_holds_the_truth_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(3)
    held = []
    for _ in range(1500):
        shared, own, other = rng.normal(0, 10, 6), rng.normal(2, 1, 6), rng.normal(0, 1, 6)
        found = paired_difference(by_task((shared + own).tolist()), by_task((shared + other).tolist()))
        assert found is not None
        assert found.margin is not None
        held.append(abs(found.mean - 2) <= found.margin)
    assert np.mean(held) == pytest.approx(0.95, abs=0.017)


CURVES = np.random.default_rng(0).random((5, 3))


def of_seeds(curves: np.ndarray) -> dict[Key, np.ndarray]:
    return {(None, seed): curve for seed, curve in enumerate(curves)}


def test_bands_are_those_of_numpy_and_scipy() -> None:
    mean, deviation = np.mean(CURVES, 0), np.std(CURVES, 0, ddof=1)
    low, high = stats.t.interval(0.95, 4, loc=mean, scale=stats.sem(CURVES, axis=0))
    expected = {
        "std": (mean - deviation, mean + deviation),
        "range": (CURVES.min(0), CURVES.max(0)),
        "interval": (low, high),
        "none": (mean, mean),
    }
    for band in get_args(Band):
        np.testing.assert_allclose(mean_and_band(of_seeds(CURVES), band), [mean, *expected[band]])


@pytest.mark.parametrize("band", get_args(Band))
def test_a_single_curve_has_no_band(band: Band) -> None:
    assert np.array_equal(mean_and_band(of_seeds(CURVES[:1]), band), [CURVES[0]] * 3)


@pytest.mark.parametrize("band", get_args(Band))
def test_the_seeds_of_a_task_are_averaged_before_the_band_over_tasks(band: Band) -> None:
    curves: dict[Key, np.ndarray] = {(int(place > 2), place): curve for place, curve in enumerate(CURVES)}
    of_tasks = np.stack([CURVES[:3].mean(axis=0), CURVES[3:].mean(axis=0)])
    np.testing.assert_allclose(mean_and_band(curves, band), mean_and_band(of_seeds(of_tasks), band))


def test_the_seeds_of_a_single_task_have_no_band() -> None:
    curves: dict[Key, np.ndarray] = {(0, seed): curve for seed, curve in enumerate(CURVES)}
    np.testing.assert_allclose(mean_and_band(curves, "std"), [CURVES.mean(axis=0)] * 3)

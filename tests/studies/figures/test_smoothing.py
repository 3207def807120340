"""Smoothing, which plots and comparisons share."""

from __future__ import annotations

import numpy as np
import pytest

from rayfl.errors import ScenarioError
from rayfl.studies.statistics import check_smoothing, smoothed


def test_smoothing_averages_a_centred_window_within_a_phase() -> None:
    values = np.array([1.0, 2.0, 6.0, 4.0, 10.0, 30.0, 20.0])
    found = smoothed(values, ["a"] * 4 + ["b"] * 3, 3)
    np.testing.assert_allclose(found, [1, 3, 4, 4, 10, 20, 20])
    assert np.array_equal(smoothed(values, ["a"] * 7, 1), values)


def test_smoothing_stops_at_a_missing_value() -> None:
    values = np.array([1.0, 2.0, 6.0, np.nan, 4.0, 10.0, 10.0])
    np.testing.assert_allclose(smoothed(values, ["a"] * 7, 3), [1, 3, 6, np.nan, 4, 8, 10])


@pytest.mark.parametrize("window", [0, 4, -1])
def test_a_smoothing_window_has_a_centre(window: int) -> None:
    with pytest.raises(ScenarioError, match="smooth: must be an odd number of evaluated rounds"):
        check_smoothing(window)

"""Means over tasks and seeds, and paired differences with intervals, against independent computation."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from rayfl.studies.grid.results import FinishedRun, by_repetition, paired
from tests.runs.evaluations import ACCURACY


def run(value: float, seed: int, task: int | None = None) -> FinishedRun:
    return FinishedRun(
        row="row",
        column="column",
        seed=seed,
        headline=ACCURACY,
        best=value,
        best_round=1,
        last=value,
        mean_last_5=value,
        rounds=1,
        test_loss=None,
        seconds=1.0,
        data="points",
        data_source="arrays",
        data_description="",
        data_digests=(),
        task=task,
        figures={"spread": value},
    )


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (29, 2.045), (120, 1.980)],
)
def test_an_interval_is_as_wide_as_printed_tables_of_the_t_distribution_say(degrees: int, quantile: float) -> None:
    values = [float(value) for value in np.random.default_rng(degrees).normal(70, 5, degrees + 1)]
    ours = [run(value, 0, task) for task, value in enumerate(values)]
    theirs = [run(0, 0, task) for task in range(degrees + 1)]
    found = paired(ours, theirs, "best")
    assert found is not None
    standard_error = statistics.stdev(values) / math.sqrt(degrees + 1)
    assert found.margin == pytest.approx(quantile * standard_error, abs=5e-4 * standard_error)


def test_seeds_of_a_task_count_as_one_value() -> None:
    runs = [run(70, 0, 0), run(80, 1, 0), run(60, 0, 1), run(90, 0, 2), run(94, 1, 2)]
    assert by_repetition(runs, "best") == [75, 60, 92]
    assert by_repetition(runs, "spread") == [75, 60, 92]


def test_without_tasks_every_seed_is_a_value() -> None:
    assert by_repetition([run(70, 3), run(80, 5)], "last") == [70, 80]


def test_differences_are_paired_by_task_and_seed_and_averaged_over_seeds() -> None:
    # by task: (3 + 5) / 2 = 4, (1 - 3) / 2 = -1, 6; the mean is 3, the squares sum to 1 + 16 + 9 = 26, so the deviation
    # is the root of 13, and the margin 4.303 sqrt(13 / 3)
    ours = [run(73, 0, 0), run(85, 1, 0), run(61, 0, 1), run(67, 1, 1), run(96, 0, 2), run(1, 1, 2)]
    theirs = [run(70, 0, 0), run(80, 1, 0), run(60, 0, 1), run(70, 1, 1), run(90, 0, 2), run(5, 0, 3)]
    found = paired(ours, theirs, "spread")
    assert found is not None
    assert found.repetitions == 3
    assert found.mean == pytest.approx(3.0)
    assert found.margin == pytest.approx(4.30265 * math.sqrt(13 / 3), rel=1e-5)


def test_a_95_percent_interval_holds_the_truth_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(3)
    held = []
    for _ in range(1500):
        shared, own, other = rng.normal(0, 10, 6), rng.normal(2, 1, 6), rng.normal(0, 1, 6)
        ours = [run(float(value), 0, task) for task, value in enumerate(shared + own)]
        theirs = [run(float(value), 0, task) for task, value in enumerate(shared + other)]
        found = paired(ours, theirs, "best")
        assert found is not None
        assert found.margin is not None
        held.append(abs(found.mean - 2) <= found.margin)
    assert statistics.fmean(held) == pytest.approx(0.95, abs=0.017)


def test_one_pair_has_no_interval_and_none_has_no_difference() -> None:
    found = paired([run(73, 0, 0)], [run(70, 0, 0)], "best")
    assert found is not None
    assert (found.mean, found.margin) == (3, None)
    assert paired([run(73, 0, 0)], [run(70, 1, 0)], "best") is None

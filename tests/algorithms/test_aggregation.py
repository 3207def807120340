"""Robust aggregations, against plain loops in float64 over the coordinates and clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms import updates as updates_module
from rayfl.algorithms.aggregation import Aggregation, GeometricMedian, Krum, Mean, Median, TrimmedMean
from rayfl.algorithms.exchange import Answers
from rayfl.algorithms.updates import Updates
from rayfl.engine.events import RoundDone
from rayfl.errors import RayflError, ScenarioError
from tests.algorithms.reference import Vector, assert_equal_and_unlike, fedavg, rounds, sizes
from tests.algorithms.scene import PLAIN, SIZES, Setting, prepared, trained
from tests.engine.scenes import run_on_hosts

Points = Sequence[Sequence[float]]
WIDE = Setting(((0, 1, 2, 3, 4, 5, 6), (7, 3, 8, 9, 10, 11, 1)), rounds=2, local=PLAIN.local)
"""Cohorts of seven."""


def plain_median(points: Points, weights: Sequence[float]) -> list[float]:
    return [median(column) for column in zip(*points, strict=True)]


def plain_trimmed_mean(points: Points, weights: Sequence[float]) -> list[float]:
    """Of seven, share 0.3 leaves out two at either end."""
    return [sum(sorted(column)[2:-2]) / (len(column) - 4) for column in zip(*points, strict=True)]


def squared(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def plain_krum(points: Points, weights: Sequence[float], byzantine: int = 2, select: int = 1) -> list[float]:
    scores = []
    for i, point in enumerate(points):
        others = sorted(squared(point, other) for j, other in enumerate(points) if j != i)
        scores.append((math.fsum(others[: len(points) - byzantine - 2]), i))
    best = [points[i] for _, i in sorted(scores)[:select]]
    return [math.fsum(column) / select for column in zip(*best, strict=True)]


def plain_multi_krum(points: Points, weights: Sequence[float]) -> list[float]:
    return plain_krum(points, weights, byzantine=1, select=3)


def plain_geometric_median(points: Points, weights: Sequence[float]) -> list[float]:
    def mean(by: Sequence[float]) -> list[float]:
        columns = zip(*points, strict=True)
        return [math.fsum(w * x for w, x in zip(by, column, strict=True)) / math.fsum(by) for column in columns]

    point = mean(weights)
    for _ in range(6):
        distances = [math.sqrt(squared(point, other)) for other in points]
        point = mean([w / max(1e-3, far) for w, far in zip(weights, distances, strict=True)])
    return point


CASES: dict[str, tuple[dict[str, Any], Aggregation, Callable[[Points, Sequence[float]], list[float]]]] = {
    "median": ({"name": "median"}, Median(), plain_median),
    "trimmed_mean": ({"name": "trimmed_mean", "share": 0.3}, TrimmedMean(share=0.3), plain_trimmed_mean),
    "krum": ({"name": "krum", "byzantine": 2}, Krum(byzantine=2), plain_krum),
    "multi_krum": ({"name": "krum", "byzantine": 1, "select": 3}, Krum(byzantine=1, select=3), plain_multi_krum),
    "geometric_median": (
        {"name": "geometric_median", "iterations": 6, "smoothing": 1e-3},
        GeometricMedian(iterations=6, smoothing=1e-3),
        plain_geometric_median,
    ),
}
"""As a scenario names it, the object, and the plain computation."""


def seven(length: int = 53) -> Updates:
    rng = np.random.default_rng(5)
    vectors = [rng.normal(size=length).astype(np.float32) for _ in range(6)]
    vectors.append(rng.normal(1e4, 1e3, length).astype(np.float32))  # one is far off
    return Updates((0, 2, 3, 5, 8, 9, 30), np.array([3.0, 1, 2, 5, 1, 4, 7]), vectors)


@pytest.mark.parametrize("block", [7 * 10, 1 << 20], ids=["ten", "all at once"])
@pytest.mark.parametrize("name", CASES)
def test_every_aggregation_is_what_plain_loops_give(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates_module, "BLOCK", block)
    _, aggregation, plain = CASES[name]
    updates = seven()
    expected = plain([[float(x) for x in vector] for vector in updates.vectors], list(updates.weights))
    ours = aggregation.combine(updates)
    assert ours.dtype == np.float64
    assert np.allclose(ours, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("name", CASES)
def test_one_client_far_off_hardly_moves_a_robust_aggregation(name: str) -> None:
    updates, aggregation = seven(), CASES[name][1]
    if isinstance(aggregation, GeometricMedian):  # it starts from the mean, which is far off too
        aggregation = GeometricMedian(iterations=50)
    honest = np.stack(updates.vectors[:-1])
    assert np.abs(aggregation.combine(updates)).max() < 2 * np.abs(honest).max()
    assert np.abs(Mean().combine(updates)).max() > 100


def test_distances_may_leave_out_what_the_protocol_does_not_send() -> None:
    updates = seven()
    outlier = np.array(updates.vectors[0])
    outlier[50:] = 1e6
    vectors = [outlier, *updates.vectors[1:]]
    spoilt = Updates(updates.clients, updates.weights, vectors).compared_on(50)
    assert np.array_equal(spoilt.pairwise_squared_distances(), updates.compared_on(50).pairwise_squared_distances())
    point = np.zeros(53)
    assert np.array_equal(spoilt.squared_distances(point), updates.compared_on(50).squared_distances(point))
    assert spoilt.compared_on(53).squared_distances(point)[0] > 1e12


def reference(plain: Callable[[Points, Sequence[float]], list[float]], weighted: bool) -> Vector:
    """Federated training with a plain aggregation."""
    w = WIDE.initial()
    for cohort in rounds(WIDE):
        weights = sizes(cohort) if weighted else [1.0] * len(cohort)
        by_client = sorted(cohort, key=lambda update: update.client)
        order = [sizes(cohort).index(float(SIZES[update.client])) for update in by_client]
        changes = [(update.sgd(w) - w).tolist() for update in by_client]
        w = w + torch.tensor(plain(changes, [weights[place] for place in order]), dtype=torch.float64)
    return w


@pytest.mark.parametrize("name", ["median", "multi_krum", "geometric_median"])
def test_training_with_it_is_the_plain_algorithm(name: str) -> None:
    chosen, _, plain = CASES[name]
    weighting = "samples" if name == "geometric_median" else "uniform"
    ours = trained({"name": "fedavg", "weighting": weighting, "aggregation": chosen}, WIDE)
    expected = reference(plain, weighting == "samples")
    assert_equal_and_unlike(ours, expected, fedavg(WIDE, uniform=weighting == "uniform"), WIDE)


@pytest.mark.parametrize("name", ["median", "krum", "geometric_median"])
def test_bits_depend_neither_on_hosts_nor_on_the_order_of_the_cohort(name: str) -> None:
    algorithm = {"name": "fedavg", "weighting": "uniform", "aggregation": CASES[name][0]}
    backwards = Setting([cohort[::-1] for cohort in WIDE.cohorts], WIDE.rounds, WIDE.local)
    forwards, other = (
        run_on_hosts(prepared(algorithm, setting)[0], hosts)[0] for setting, hosts in ((WIDE, 1), (backwards, 2))
    )
    assert np.array_equal(forwards, other)


@pytest.mark.parametrize("algorithm", ["fedbabu", "scaffold"])
def test_the_traffic_is_that_of_a_mean(algorithm: str) -> None:
    traffic = []
    for aggregation in ("mean", "median"):
        options = {"name": algorithm, "weighting": "uniform", "aggregation": aggregation}
        _, events = run_on_hosts(prepared(options, WIDE)[0], 2)
        traffic.append([event.traffic for event in events if isinstance(event, RoundDone)])
    assert traffic[0] == traffic[1]


def test_scaffolds_control_variates_stay_sums() -> None:
    """With two clients the median is the mean, up to rounding, so that only the control variates could differ."""
    pairs = Setting(((0, 3), (4, 7)), rounds=4, local=PLAIN.local)
    means, medians = (trained({"name": "scaffold", "aggregation": chosen}, pairs) for chosen in ("mean", "median"))
    assert torch.allclose(means, medians, rtol=0, atol=1e-6)


def test_the_participants_mean_can_be_evaluated_beside_any_aggregation() -> None:
    first = Setting(WIDE.cohorts, 1, WIDE.local)
    algorithm = {"name": "fedavg", "weighting": "uniform", "aggregation": "median"}
    mean = trained({"name": "fedavg", "weighting": "uniform"}, first)
    assert torch.allclose(trained(algorithm, first, eval_model="participants"), mean, rtol=0, atol=1e-6)
    assert not torch.allclose(trained(algorithm, first), mean, rtol=0, atol=1e-4)


class Smallest(Aggregation):
    """A user's own: of every coordinate the change closest to zero, times a factor."""

    name: str = "smallest"
    factor: float = 1.0

    def combine(self, updates: Updates) -> np.ndarray:
        return self.factor * updates.by_coordinate(
            lambda values: np.take_along_axis(values, np.abs(values).argmin(axis=0)[None], axis=0)[0]
        )


class Short(Smallest):
    def combine(self, updates: Updates) -> np.ndarray:
        return super().combine(updates)[1:]


def test_an_aggregation_of_a_users_own_by_its_import_path() -> None:
    def smallest(points: Points, weights: Sequence[float]) -> list[float]:
        return [0.5 * min(column, key=abs) for column in zip(*points, strict=True)]

    chosen = {"name": f"{__name__}:Smallest", "factor": 0.5}
    ours = trained({"name": "fedavg", "weighting": "uniform", "aggregation": chosen}, WIDE)
    assert_equal_and_unlike(ours, reference(smallest, False), fedavg(WIDE, uniform=True), WIDE)


def test_an_own_aggregation_that_returns_another_length_is_named() -> None:
    algorithm = {"name": "fedavg", "weighting": "uniform", "aggregation": f"{__name__}:Short"}
    length = len(prepared("fedavg", WIDE)[0].initial_models[0].vector)
    with pytest.raises(
        RayflError, match=rf"aggregation '.*:Short': combine\(\) must return an array \[{length}\], not"
    ):
        run_on_hosts(prepared(algorithm, WIDE)[0], 1)


def test_asking_the_answers_for_what_they_do_not_hold_is_explained() -> None:
    one = Answers(7, 7.0, {}, {}, each={"delta": seven()})
    with pytest.raises(RayflError, match=r"'delta' came one by one \(each=True\) and was not summed"):
        one.mean("delta")
    with pytest.raises(RayflError, match=r"there are no single vectors 'change'; .*\(single vectors: delta\)"):
        one.one_by_one("change")


UNIFORM = {"name": "fedavg", "weighting": "uniform"}


@pytest.mark.parametrize(
    ("algorithm", "complaint"),
    [
        (
            {"name": "fedavg", "aggregation": "median"},
            ": weighting = 'samples' has no meaning with aggregation = 'median', which counts every client once; use ",
        ),
        (
            {"name": "fednova", "weighting": "uniform", "aggregation": "median"},
            ": aggregation = 'median' is not defined for 'fednova', whose step is a mean of changes times a mean of ",
        ),
        (UNIFORM | {"aggregation": "mode"}, ".aggregation: unknown aggregation 'mode'; did you mean 'mean'?"),
        (
            UNIFORM | {"aggregation": {"name": "trimmed_mean", "share": 0.1}},
            ".aggregation: share = 0.1 trims none of 7 clients, which is the plain mean; use at least 0.143",
        ),
        (
            UNIFORM | {"aggregation": {"name": "krum", "byzantine": 3}},
            ".aggregation: 'krum' with byzantine = 3 needs cohorts of at least 9 clients (n > 2 f + 2), but this one ",
        ),
        (
            UNIFORM | {"aggregation": {"name": "krum", "select": 7}},
            ".aggregation: select = 7 of 7 clients is the mean of all; select fewer",
        ),
    ],
)
def test_nonsense_is_rejected_before_the_start(algorithm: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        prepared(algorithm, WIDE)
    assert str(caught.value).startswith(f"phases.federated.algorithm{complaint}")


def test_a_cohort_of_chance_may_be_too_small_for_krum() -> None:
    with pytest.raises(ScenarioError, match=r"needs cohorts of at least 5 clients .* this one can have 1"):
        prepared(UNIFORM | {"aggregation": "krum"}, WIDE, {"cohort": {"bernoulli": 0.9}})
    with pytest.raises(ScenarioError, match="'trimmed_mean' needs cohorts of at least 3 clients"):
        prepared(UNIFORM | {"aggregation": {"name": "trimmed_mean", "share": 0.4}}, WIDE, {"cohort": 2})


def test_a_relay_has_nothing_to_aggregate() -> None:
    with pytest.raises(ScenarioError, match=r"phases.federated.algorithm.aggregation: has no effect in a relay"):
        prepared({"name": "fedbabu", "aggregation": "median"}, WIDE, {"schedule": "relay"})

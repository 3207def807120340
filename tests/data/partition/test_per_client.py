"""Clients that draw from their own mixtures: distribution, sizes, and classes that run out."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.data.partition import dirichlet_per_client, dirichlet_per_client_unequal
from rayfl.data.partition.dirichlet import _filled, _turns
from rayfl.streams import stream
from tests.data.splits import assert_every_row_is_used_once, fashion_mnist_labels, populations, seeds, some_labels

alphas = st.sampled_from([1e-300, 1e-3, 0.3, 100.0])


@given(populations, st.integers(1, 12), alphas, seeds)
def test_equal_sizes_use_every_row_once_and_differ_by_at_most_one(
    population: tuple[int, int], classes: int, alpha: float, seed: int
) -> None:
    clients, rows = population
    split = dirichlet_per_client(
        some_labels(rows, classes, seed), classes, clients, stream(seed, "partition"), alpha=alpha
    )
    assert_every_row_is_used_once(split, rows, clients)
    assert split.sizes.max() - split.sizes.min() <= 1


@given(populations, st.integers(1, 12), alphas, st.sampled_from([1e-9, 0.3, 100.0]), seeds)
def test_log_normal_sizes_use_every_row_once(
    population: tuple[int, int], classes: int, alpha: float, sigma: float, seed: int
) -> None:
    clients, rows = population
    labels = some_labels(rows, classes, seed)
    assert_every_row_is_used_once(
        dirichlet_per_client(labels, classes, clients, stream(seed, "partition"), alpha=alpha, sigma=sigma),
        rows,
        clients,
    )


@given(populations, st.integers(1, 12), alphas, seeds)
def test_unequal_clients_of_fedexp_use_every_row_once(
    population: tuple[int, int], classes: int, alpha: float, seed: int
) -> None:
    clients, rows = population
    labels = some_labels(rows, classes, seed)
    split = dirichlet_per_client_unequal(labels, classes, clients, stream(seed, "partition"), alpha=alpha)
    assert_every_row_is_used_once(split, rows, clients)


@pytest.mark.slow
def test_logarithms_of_the_sizes_have_the_given_deviation() -> None:
    split = dirichlet_per_client(np.zeros(2_000_000, np.int64), 1, 1000, stream(0, "partition"), alpha=1.0, sigma=0.5)
    # The deviation of a sample of 1000 is off by sigma / sqrt(2000) = 0.011 or so.
    assert np.log(split.sizes).std() == pytest.approx(0.5, abs=5 * 0.011)


def test_clients_that_are_not_full_are_picked_with_equal_chances() -> None:
    sizes = np.array([1, 2])
    drawn = Counter(tuple(_turns(sizes, np.random.default_rng(seed)).tolist()) for seed in range(1500))
    # Either client comes first with probability 1/2; after the larger, either again.
    for order, probability in {(0, 1, 1): 1 / 2, (1, 0, 1): 1 / 4, (1, 1, 0): 1 / 4}.items():
        assert drawn[order] / 1500 == pytest.approx(
            probability, abs=5 * (probability * (1 - probability) / 1500) ** 0.5
        )


def filled_one_sample_at_a_time(
    sizes: np.ndarray, mixtures: np.ndarray, class_sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The procedure as in the code of the paper."""
    quota, left = sizes.copy(), class_sizes.copy()
    counts = np.zeros((len(left), len(sizes)), np.int64)
    while quota.sum():
        client = rng.integers(len(sizes))
        if not quota[client]:
            continue
        label = rng.choice(len(left), p=mixtures[client])
        while not left[label]:
            label = rng.choice(len(left), p=mixtures[client])
        quota[client] -= 1
        left[label] -= 1
        counts[label, client] += 1
    return counts


def test_counts_have_the_law_of_the_procedure_that_assigns_one_sample_at_a_time() -> None:
    sizes, class_sizes = np.array([6, 3, 3]), np.array([2, 4, 6])
    mixtures = np.array([[0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.2, 0.5, 0.3]])
    runs = 600
    draws = [
        np.stack([fill(sizes, mixtures, class_sizes, np.random.default_rng(seed)) for seed in range(runs)])
        for fill in (_filled, filled_one_sample_at_a_time)
    ]
    ours, plain = (counts.reshape(runs, -1).astype(float) for counts in draws)
    # Means, and means of all products of two counts, within five standard errors of their difference.
    for x, y in ((ours, plain), (ours[:, :, None] * ours[:, None], plain[:, :, None] * plain[:, None])):
        error = ((x.var(axis=0) + y.var(axis=0)) / runs) ** 0.5
        assert (abs(x.mean(axis=0) - y.mean(axis=0)) <= 5 * error + 1e-12).all()


def test_while_classes_last_the_mixtures_of_clients_are_dirichlet() -> None:
    labels = np.repeat(np.arange(2), 100_000)
    split = dirichlet_per_client(labels, 2, 2000, stream(0, "partition"), alpha=0.5)
    shares = np.array([labels[split[client]].mean() for client in range(2000)])
    # Beta(1/2, 1/2) has variance 1/8; drawing 100 rows adds (1/4 - 1/8) / 100. Only the last clients run short: what
    # all of them want of a class has a deviation of 1.6 % of it.
    assert shares.var() == pytest.approx(1 / 8 + 1 / 800, rel=0.06)


def test_a_client_whose_classes_are_used_up_takes_what_is_left() -> None:
    mixtures = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    counts = _filled(np.array([4, 4]), mixtures, np.array([5, 2, 1]), stream(0, "partition"))
    np.testing.assert_array_equal(counts.sum(axis=1), [5, 2, 1])
    np.testing.assert_array_equal(counts.sum(axis=0), [4, 4])


def test_a_client_with_hardly_any_weight_left_draws_by_that_weight() -> None:
    mixtures = np.array([[1.0, 5e-324, 0.0]])
    counts = _filled(np.array([7]), mixtures, np.array([2, 5, 0]), stream(0, "partition"))
    np.testing.assert_array_equal(counts, [[2], [5], [0]])


def test_smaller_alpha_means_more_skew() -> None:
    labels = fashion_mnist_labels()

    def largest_class_share(alpha: float) -> float:
        split = dirichlet_per_client(labels, 10, 20, stream(0, "partition"), alpha=alpha)
        return float(np.mean([np.bincount(labels[split[c]]).max() / len(split[c]) for c in range(20)]))

    assert largest_class_share(0.1) > largest_class_share(1.0) > largest_class_share(100.0)
    assert largest_class_share(1000.0) < 0.13


def test_unequal_clients_share_a_class_in_proportion_to_their_mixtures() -> None:
    labels = np.repeat(np.arange(3), 10_000)
    split = dirichlet_per_client_unequal(labels, 3, 4, stream(5, "partition"), alpha=1.0)
    mixtures = stream(5, "partition").dirichlet(np.ones(3), 4)
    for client in range(4):
        held = np.bincount(labels[split[client]], minlength=3)
        np.testing.assert_allclose(held, 10_000 * mixtures[client] / mixtures.sum(axis=0), atol=1.01)

"""Partitioners: every row used once, sizes as promised, the same split from the same seed, errors that help."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayfl.config.registry import call_with_options
from rayfl.data import partitioners
from rayfl.data.dataset import NaturalClients, Shards
from rayfl.data.partition import (
    dirichlet,
    dirichlet_balanced,
    dirichlet_per_client,
    dirichlet_per_client_unequal,
    dirichlet_plain,
    iid,
    natural,
    shards,
)
from rayfl.data.partition.dirichlet import _capped_counts, _scaled
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream
from tests.data.splits import (
    assert_every_row_is_used_once,
    equal,
    fashion_mnist_labels,
    populations,
    seeds,
    some_labels,
)


@given(populations, seeds)
def test_iid_uses_every_row_once_in_sizes_that_differ_by_at_most_one(population: tuple[int, int], seed: int) -> None:
    clients, rows = population
    split = iid(rows, clients, stream(seed, "partition"))
    assert_every_row_is_used_once(split, rows, clients)
    assert split.sizes.max() - split.sizes.min() <= 1


def test_iid_gives_every_client_about_the_same_mix_of_classes() -> None:
    labels = fashion_mnist_labels()
    split = iid(len(labels), 10, stream(0, "partition"))
    shares = np.stack([np.bincount(labels[split[client]], minlength=10) for client in range(10)])
    # Hypergeometric with mean 600 and standard deviation 22.
    assert abs(shares - 600).max() < 5 * 22


@given(populations, st.integers(1, 12), seeds)
def test_iid_per_class_spreads_every_class_evenly(population: tuple[int, int], classes: int, seed: int) -> None:
    clients, rows = population
    labels = some_labels(rows, classes, seed)
    split = iid(rows, clients, stream(seed, "partition"), labels, per_class=True)
    assert_every_row_is_used_once(split, rows, clients)
    assert split.sizes.max() - split.sizes.min() <= 1
    held = np.stack([np.bincount(labels[split[client]], minlength=classes) for client in range(clients)])
    assert (held.max(axis=0) - held.min(axis=0) <= 1).all()


def test_iid_per_class_gives_every_client_five_images_of_each_class_of_cifar100() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))
    split = iid(50_000, 100, stream(0, "partition"), labels, per_class=True)
    for client in range(100):
        np.testing.assert_array_equal(np.bincount(labels[split[client]]), np.full(100, 5))


def test_iid_splits_a_million_rows_among_a_hundred_thousand_clients() -> None:
    split = iid(1_000_000, 100_000, stream(0, "partition"))
    assert (split.sizes == 10).all()


@given(populations, st.integers(1, 12), st.sampled_from([0.01, 0.1, 1.0, 100.0]), seeds)
def test_plain_dirichlet_uses_every_row_once(
    population: tuple[int, int], classes: int, alpha: float, seed: int
) -> None:
    clients, rows = population
    labels = some_labels(rows, classes, seed)
    split = dirichlet_plain(labels, classes, clients, stream(seed, "partition"), alpha=alpha)
    assert_every_row_is_used_once(split, rows, clients)


@given(populations, st.integers(1, 12), st.sampled_from([0.3, 1.0, 100.0]), seeds)
def test_dirichlet_without_a_minimum_uses_every_row_once(
    population: tuple[int, int], classes: int, beta: float, seed: int
) -> None:
    clients, rows = population
    labels = some_labels(rows, classes, seed)
    split = dirichlet(labels, classes, clients, stream(seed, "partition"), beta=beta, min_size=0)
    assert_every_row_is_used_once(split, rows, clients)


@settings(deadline=None)
@given(st.integers(1, 20), st.sampled_from([0.5, 1.0, 10.0]), st.integers(1, 10), seeds)
def test_dirichlet_holds_the_minimum(clients: int, beta: float, min_size: int, seed: int) -> None:
    labels = some_labels(2000, 10, seed)
    split = dirichlet(labels, 10, clients, stream(seed, "partition"), beta=beta, min_size=min_size)
    assert_every_row_is_used_once(split, 2000, clients)
    assert split.sizes.min() >= min_size


@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_dirichlet_splits_fashion_mnist_among_a_hundred_clients_with_the_default_tries(beta: float, seed: int) -> None:
    split = dirichlet(fashion_mnist_labels(), 10, 100, stream(seed, "partition"), beta=beta)
    assert_every_row_is_used_once(split, 60_000, 100)
    assert split.sizes.min() >= 10


@given(st.integers(2, 30), st.sampled_from([0.2, 1.0, 5.0]), seeds)
def test_a_client_gets_nothing_more_once_it_holds_its_even_share(clients: int, beta: float, seed: int) -> None:
    class_sizes = np.array([400, 100, 0, 250, 50])
    counts = _capped_counts(class_sizes, clients, beta, stream(seed, "partition"))
    if counts is None:
        return
    np.testing.assert_array_equal(counts.sum(axis=1), class_sizes)
    held_before = np.cumsum(counts, axis=0) - counts
    assert (counts[held_before >= class_sizes.sum() / clients] == 0).all()


def test_a_class_without_rows_does_not_fail_when_all_clients_are_full() -> None:
    split = dirichlet(np.zeros(40, np.int64), 7, 1, stream(0, "partition"), beta=0.5, min_size=40)
    assert_every_row_is_used_once(split, 40, 1)


def test_smaller_beta_means_more_skew() -> None:
    labels = fashion_mnist_labels()

    def largest_class_share(beta: float) -> float:
        split = dirichlet(labels, 10, 20, stream(0, "partition"), beta=beta)
        return float(np.mean([np.bincount(labels[split[c]]).max() / len(split[c]) for c in range(20)]))

    assert largest_class_share(0.1) > largest_class_share(1.0) > largest_class_share(100.0)
    assert largest_class_share(1000.0) < 0.2


def test_proportions_of_plain_dirichlet_have_the_mean_and_variance_of_the_distribution() -> None:
    clients, alpha = 5, 0.5
    labels = np.repeat(np.arange(400), 1000)
    split = dirichlet_plain(labels, 400, clients, stream(0, "partition"), alpha=alpha)
    shares = np.stack([np.bincount(labels[split[c]], minlength=400) for c in range(clients)]) / 1000
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    np.testing.assert_allclose(shares.mean(), 1 / clients)
    np.testing.assert_allclose(shares.mean(axis=1), 1 / clients, atol=5 * (variance / 400) ** 0.5)
    np.testing.assert_allclose(shares.var(), variance, rtol=0.15)


@given(st.integers(1, 30), st.integers(1, 12), st.sampled_from([0.3, 1.0, 100.0]), seeds)
def test_balanced_dirichlet_uses_every_row_once_in_sizes_that_differ_by_at_most_one(
    clients: int, classes: int, alpha: float, seed: int
) -> None:
    labels = some_labels(400, classes, seed)
    split = dirichlet_balanced(labels, classes, clients, stream(seed, "partition"), alpha=alpha)
    assert_every_row_is_used_once(split, 400, clients)
    assert split.sizes.max() - split.sizes.min() <= 1


def test_balanced_dirichlet_with_equal_proportions_gives_every_client_its_share_of_each_class_rounded_down() -> None:
    labels = fashion_mnist_labels()
    split = dirichlet_balanced(labels, 10, 99, stream(0, "partition"), alpha=1e12)
    for client in range(99):
        assert np.bincount(labels[split[client]], minlength=10).min() >= 6000 // 99


def test_balanced_dirichlet_keeps_the_ratios_of_the_draw_up_to_a_factor_per_client_and_class() -> None:
    proportions = stream(0, "partition").dirichlet(np.full(4, 1.0), 3)
    scaled = _scaled(proportions, np.array([6000, 3000, 3000]), np.array([3000] * 4))
    np.testing.assert_allclose(scaled.sum(axis=1), [6000, 3000, 3000])
    np.testing.assert_allclose(scaled.sum(axis=0), [3000] * 4)
    # Scaling lines and columns leaves every cross ratio as it was drawn.
    ratios = [m[0, 0] * m[1:, 1:] / (m[0, 1:] * m[1:, :1]) for m in (proportions, scaled)]
    np.testing.assert_allclose(*ratios)


def test_balanced_dirichlet_that_cannot_be_scaled_says_what_to_change() -> None:
    # Two classes that one client each gets all of leave nothing to the third.
    with pytest.raises(
        ScenarioError,
        match=r"none of 7 Dirichlet draws could be scaled to 3 clients of equal size; choose a larger alpha "
        r"\(now 1e-09\), another number of clients, or more tries",
    ):
        dirichlet_balanced(np.arange(60) % 2, 2, 3, stream(0, "partition"), alpha=1e-9, tries=7)


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 10), seeds)
def test_shards_give_every_client_equal_pieces_of_sorted_labels(
    clients: int, per_client: int, piece: int, seed: int
) -> None:
    rows = clients * per_client * piece
    labels = some_labels(rows, 10, seed)
    split = shards(labels, clients, stream(seed, "partition"), shards_per_client=per_client)
    assert_every_row_is_used_once(split, rows, clients)
    assert (split.sizes == per_client * piece).all()


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 50), seeds)
def test_shards_of_rows_that_do_not_divide_differ_by_one_row_a_piece(
    clients: int, per_client: int, more: int, seed: int
) -> None:
    rows = clients * per_client + more
    split = shards(some_labels(rows, 10, seed), clients, stream(seed, "partition"), shards_per_client=per_client)
    assert_every_row_is_used_once(split, rows, clients)
    assert split.sizes.max() - split.sizes.min() <= per_client


def test_two_shards_of_balanced_digits_leave_each_client_at_most_two_classes() -> None:
    labels = fashion_mnist_labels()
    split = shards(labels, 100, stream(0, "partition"))
    classes = [len(np.unique(labels[split[client]])) for client in range(100)]
    assert max(classes) == 2
    assert (split.sizes == 600).all()


@pytest.mark.parametrize("shard_per_user", [10, 50, 100])
def test_shards_give_fedbabus_users_of_cifar100_whole_pieces_of_one_class_each(shard_per_user: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))
    split = shards(labels, 100, stream(0, "partition"), shards_per_client=shard_per_user)
    for client in range(100):
        held = np.bincount(labels[split[client]], minlength=100)
        assert np.count_nonzero(held) <= shard_per_user
        # Each class is cut into as many pieces as a user has.
        assert (held % (500 // shard_per_user) == 0).all()
        assert held.sum() == 500


SEEDED: dict[str, Callable[[np.ndarray, np.random.Generator], Shards]] = {
    "iid": lambda labels, rng: iid(len(labels), 10, rng),
    "dirichlet": lambda labels, rng: dirichlet(labels, 10, 10, rng, beta=0.5),
    "dirichlet_plain": lambda labels, rng: dirichlet_plain(labels, 10, 10, rng, alpha=0.5),
    "iid per class": lambda labels, rng: iid(len(labels), 10, rng, labels, per_class=True),
    "dirichlet_balanced": lambda labels, rng: dirichlet_balanced(labels, 10, 10, rng, alpha=0.5),
    "dirichlet_per_client": lambda labels, rng: dirichlet_per_client(labels, 10, 10, rng, alpha=0.5),
    "dirichlet_per_client log-normal": lambda labels, rng: dirichlet_per_client(
        labels, 10, 10, rng, alpha=0.5, sigma=0.5
    ),
    "dirichlet_per_client_unequal": lambda labels, rng: dirichlet_per_client_unequal(labels, 10, 10, rng, alpha=0.5),
    "shards": lambda labels, rng: shards(labels, 10, rng),
}


@pytest.mark.parametrize("name", SEEDED)
def test_the_same_seed_gives_the_same_split_and_another_seed_another(name: str) -> None:
    labels = some_labels(1000, 10, 0)
    first = SEEDED[name](labels, stream(1, "partition"))
    assert equal(first, SEEDED[name](labels, stream(1, "partition")))
    assert not equal(first, SEEDED[name](labels, stream(2, "partition")))


def test_natural_returns_the_clients_of_the_data() -> None:
    train = Shards.by_owner(np.array([1, 0, 1]), 2)
    assert natural(NaturalClients(("a", "b"), train, train)) is train


def test_natural_names_the_other_partitioners_where_the_data_has_no_clients() -> None:
    with pytest.raises(DataError, match=r"natural clients.*such as 'iid', 'dirichlet' or 'shards'"):
        natural(None)


def test_dirichlet_that_never_succeeds_says_how_close_it_came_and_what_to_change() -> None:
    with pytest.raises(
        ScenarioError,
        match=r"none of 5 Dirichlet draws gave each of 100 clients 400 rows; in the best the smallest client had \d+\. "
        r"Choose a larger beta \(now 0\.1\), fewer clients, a smaller min_size, or more tries",
    ):
        dirichlet(fashion_mnist_labels(), 10, 100, stream(0, "partition"), beta=0.1, min_size=400, tries=5)


def test_draws_that_fall_to_full_clients_only_end_in_the_error_too() -> None:
    # At this beta a draw is one client, and twenty of them are all different once in 43 million tries.
    labels = np.repeat(np.arange(20), 10)
    with pytest.raises(ScenarioError, match="none of 20 Dirichlet draws"):
        dirichlet(labels, 20, 20, stream(0, "partition"), beta=1e-6, min_size=0, tries=20)


def given_by_rayfl(**changes: Any) -> dict[str, Any]:
    usual = {"labels": np.zeros(100, np.int64), "num_samples": 100, "num_classes": 10, "clients": 5, "natural": None}
    return usual | {"rng": stream(0, "partition")} | changes


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "dirichlet",
            {"beta": 1, "min_size": 21},
            r"data\.partition\.min_size: 5 clients of at least 21 rows need",
        ),
    ],
)
def test_a_bad_option_is_named_by_key(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        call_with_options(partitioners.resolve(name), options, given_by_rayfl(), "data.partition")


def test_more_shards_than_rows_is_an_error_that_says_what_to_change() -> None:
    with pytest.raises(DataError, match="5 clients with 21 shards each need 105 rows, the training data has 100"):
        call_with_options(partitioners.resolve("shards"), {"shards_per_client": 21}, given_by_rayfl(), "data.partition")


COUNTED: list[tuple[str, dict[str, Any]]] = [
    ("iid", {}),
    ("iid", {"per_class": True}),
    ("dirichlet", {"beta": 1.0}),
    ("dirichlet_plain", {"alpha": 1.0}),
    ("dirichlet_balanced", {"alpha": 1.0}),
    ("dirichlet_per_client", {"alpha": 1.0}),
    ("dirichlet_per_client_unequal", {"alpha": 1.0}),
    ("shards", {}),
]


@pytest.mark.parametrize(("name", "options"), COUNTED)
def test_partitioners_of_labels_need_a_number_of_clients(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=r"data\.clients: needs a number"):
        call_with_options(partitioners.resolve(name), options, given_by_rayfl(clients=None), "data.partition")


@pytest.mark.parametrize(("name", "options"), COUNTED)
def test_more_clients_than_rows_is_an_error_that_names_both(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"data\.clients: 101 clients cannot share 100 training rows"):
        call_with_options(partitioners.resolve(name), options, given_by_rayfl(clients=101), "data.partition")


def test_every_registered_partitioner_is_called_with_what_rayfl_knows() -> None:
    train = Shards.by_owner(np.zeros(100, np.int64), 1)
    known = given_by_rayfl(natural=NaturalClients(("one",), train, train))
    assert {name for name, _ in COUNTED} | {"natural", "by_domain"} == set(partitioners)
    for name, options in [*COUNTED, ("natural", {}), ("by_domain", {})]:
        split = call_with_options(partitioners.resolve(name), options, known, "data.partition")
        assert_every_row_is_used_once(split, 100, 1 if name == "natural" else 5)

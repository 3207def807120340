"""Domains dealt to clients: one domain per client, every row used once, the same number of clients per domain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.data.dataset import NaturalClients, Shards
from rayfl.data.partition import by_domain
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream
from tests.data.splits import assert_every_row_is_used_once, equal, seeds


def domains_of(owner: np.ndarray, names: tuple[str, ...]) -> NaturalClients:
    shards = Shards.by_owner(owner, len(names))
    return NaturalClients(names, shards, shards)


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 40), seeds)
def test_every_client_has_one_domain_and_domains_are_dealt_evenly(
    domains: int, each: int, more: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    owner = draw.permutation(np.concatenate([np.repeat(np.arange(domains), each), draw.integers(0, domains, more)]))
    split = by_domain(domains_of(owner, tuple("abcdef"[:domains])), domains * each, stream(seed, "partition"))
    assert_every_row_is_used_once(split, len(owner), domains * each)
    for client in range(domains * each):
        assert (owner[split[client]] == client // each).all()
        assert (np.diff(split[client]) > 0).all()
    sizes = split.sizes.reshape(domains, each)
    assert (sizes.max(axis=1) - sizes.min(axis=1) <= 1).all()


def test_rows_that_no_domain_owns_are_left_out() -> None:
    shards = Shards(np.array([5, 3, 1, 0]), np.array([0, 2, 4]))
    split = by_domain(NaturalClients(("a", "b"), shards, shards), 2, stream(0, "partition"))
    assert [split[client].tolist() for client in range(2)] == [[3, 5], [0, 1]]


def test_the_same_seed_gives_the_same_split_and_another_seed_another() -> None:
    natural = domains_of(np.arange(400) % 4, ("art", "clipart", "photo", "sketch"))
    first = by_domain(natural, 8, stream(1, "partition"))
    assert equal(first, by_domain(natural, 8, stream(1, "partition")))
    assert not equal(first, by_domain(natural, 8, stream(2, "partition")))


def test_data_without_domains_raises() -> None:
    with pytest.raises(DataError, match=r"data\.partition: 'by_domain' needs data with domains"):
        by_domain(None, 4, stream(0, "partition"))


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (None, r"data\.clients: needs a number; choose a multiple of 4 for 'by_domain'"),
        (
            6,
            r"data\.clients: 6 clients cannot be divided equally among 4 domains; choose a multiple of 4 for 'by_do",
        ),
        (2, r"data\.clients: 2 clients cannot be divided equally among 4 domains; choose a multiple of 4"),
    ],
)
def test_clients_that_domains_cannot_share_equally_raise(clients: int | None, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        by_domain(domains_of(np.arange(400) % 4, tuple("abcd")), clients, stream(0, "partition"))


def test_a_domain_with_fewer_rows_than_clients_is_named() -> None:
    natural = domains_of(np.array([0] * 50 + [1] * 3), ("photo", "sketch"))
    with pytest.raises(DataError, match="domain 'sketch' has 3 training rows for its 4 clients; choose at most 6"):
        by_domain(natural, 8, stream(0, "partition"))

"""Held-out samples: their owners, what they depend on, and how a batch source serves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rayfl.config.data import Data
from rayfl.data import held_out as held_out_module
from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.held_out import cut_clients
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import DataError, RayflError
from rayfl.streams import stream

HERE = "tests.data.test_held_out"
SIZES = (5, 20, 11, 40)
N = sum(SIZES)
DIRICHLET = {"name": "dirichlet", "beta": 0.5, "min_size": 5}


def numbered() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """400 training samples, each its own number."""
    return np.arange(400.0)[:, None], np.arange(400) % 4, np.arange(1000.0, 1040)[:, None], np.arange(40) % 4


def writers() -> Dataset:
    """Data with natural clients; a sample is its number, and there is a test set of another domain."""
    owner = np.random.default_rng(0).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    train = Samples(np.arange(float(N))[:, None], np.arange(N) % 3)
    test = Samples(np.arange(100.0, 108)[:, None], np.arange(8) % 3)
    natural = NaturalClients(
        ("a", "b", "c", "d"), Shards.by_owner(owner, 4), Shards.by_owner(np.repeat(np.arange(4), 2), 4)
    )
    sketches = Samples(np.arange(200.0, 206)[:, None], np.arange(6) % 3)
    return Dataset("writers", train, test, 3, Provenance("arrays", "numbers"), natural, {"sketches": sketches})


def first_half(num_samples: int) -> Shards:
    return Shards(np.arange(200), np.array([0, 100, 200]))


def test_rows_that_a_partitioner_chooses_are_refused_where_the_server_got_some() -> None:
    """It may mean rows of the source, and these are numbered anew."""
    assert store(clients=2, partition=f"{HERE}:first_half").num_clients == 2
    with pytest.raises(RayflError, match=r"chose 200 of the 360 samples that data\.server_share left to the clients"):
        store(clients=2, partition=f"{HERE}:first_half", server_share=0.1)


def store(seed: int = 3, **data: Any) -> ShardStore:
    return build_store(Data.model_validate({"name": f"{HERE}:numbered", **data}), seed, Path(), Path())


def numbers(samples: Samples, rows: Any = slice(None)) -> list[int]:
    return [int(number) for number in np.asarray(samples.x)[rows].ravel()]


def held_by(found: ShardStore, client: int, *names: str) -> list[int]:
    """The samples of the client in these sets and in training."""
    every = numbers(found.train, found.train_shards[client])
    for name in names:
        shards = found.held_out[name].shards
        assert shards is not None
        every += numbers(found.held_out[name].samples, shards[client])
    return sorted(every)


@pytest.mark.parametrize("partition", [DIRICHLET, "iid", "shards", {"name": "dirichlet_balanced", "alpha": 1.0}])
def test_every_client_gives_its_share_under_any_partition_and_loses_nothing_else(partition: Any) -> None:
    plain = store(clients=8, partition=partition)
    found = store(clients=8, partition=partition, test_share=0.2, validation_share=0.1)
    for client in range(8):
        mine = sorted(numbers(plain.train, plain.train_shards[client]))
        assert held_by(found, client, "validation", "client_test") == mine
        for name, share in (("validation", 0.1), ("client_test", 0.2)):
            shards = found.held_out[name].shards
            assert shards is not None
            assert len(shards[client]) == max(1, round(share * len(mine)))
    assert len(found.train) == sum(found.train_shards.sizes) == 400 - sum(map(len, _samples(found)))
    assert numbers(found.test) == numbers(plain.test)


@given(st.lists(st.integers(3, 30), min_size=1, max_size=9), st.integers(1, 4))
def test_a_client_holds_out_what_its_own_stream_draws(sizes: list[int], at_once: int) -> None:
    owner = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    shards = Shards.by_owner(owner, len(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out_module, "AT_ONCE", at_once)
        left, held = cut_clients(shards, 5, 0.2, 0.3)
    for client, size in enumerate(sizes):
        order = shards[client][stream(5, "hold out", client).permutation(size)]
        validation, test = (max(1, round(share * size)) for share in (0.2, 0.3))
        assert held["validation"][client].tolist() == sorted(order[:validation])
        assert held["client_test"][client].tolist() == sorted(order[size - test :])
        assert left[client].tolist() == sorted(order[validation : size - test])


def _samples(found: ShardStore) -> list[Samples]:
    return [part.samples for part in found.held_out.values()]


@given(st.lists(st.integers(3, 60), min_size=1, max_size=8), st.integers(0, 50), st.data())
def test_a_clients_parts_do_not_depend_on_the_other_clients(sizes: list[int], seed: int, data: Any) -> None:
    shards = Shards.by_owner(np.repeat(np.arange(len(sizes)), sizes), len(sizes))
    client = data.draw(st.integers(0, len(sizes) - 1))
    others = [size if number == client else data.draw(st.integers(3, 60)) for number, size in enumerate(sizes)]
    changed = Shards.by_owner(np.repeat(np.arange(len(others)), others), len(others))
    (left, held), (left_changed, held_changed) = (cut_clients(s, seed, 0.2, 0.3) for s in (shards, changed))
    for one, other in ((left, left_changed), *((held[name], held_changed[name]) for name in held)):
        first, first_changed = shards[client][0], changed[client][0]
        assert (one[client] - first).tolist() == (other[client] - first_changed).tolist()
    together = np.concatenate([left[client], *(part[client] for part in held.values())])
    assert sorted(together.tolist()) == shards[client].tolist()


def test_validation_samples_do_not_depend_on_the_test_share() -> None:
    shards = Shards.by_owner(np.arange(100) % 3, 3)
    alone, both = (cut_clients(shards, 1, 0.1, test)[1]["validation"] for test in (None, 0.5))
    assert alone.rows.tolist() == both.rows.tolist()


def test_other_seeds_hold_out_other_samples() -> None:
    shards = Shards.by_owner(np.arange(100) % 3, 3)
    assert len({cut_clients(shards, seed, 0.2, None)[1]["validation"].rows.tobytes() for seed in range(5)}) == 5


@pytest.mark.parametrize(("shares", "needed"), [((0.1, None), 1), ((None, 0.1), 1), ((0.1, 0.1), 2)])
def test_a_client_with_too_few_samples_is_named(shares: tuple[float | None, float | None], needed: int) -> None:
    sizes = [9, needed, 4]
    shards = Shards.by_owner(np.repeat(np.arange(3), sizes), 3)
    with pytest.raises(DataError, match=rf"client 1 has {needed} training samples?, too few to hold out {needed}") as e:
        cut_clients(shards, 0, *shares)
    assert str(e.value).startswith("data.validation_share" if shares[0] else "data.test_share")
    sizes[1] += 1
    left, _ = cut_clients(Shards.by_owner(np.repeat(np.arange(3), sizes), 3), 0, *shares)
    assert left.sizes[1] == 1


def test_only_the_server_has_its_samples_and_the_rest_is_partitioned() -> None:
    found = store(clients=8, partition=DIRICHLET, server_share=0.25)
    assert found.server is not None
    assert len(found.server) == 100
    clients = [number for client in range(8) for number in held_by(found, client)]
    assert sorted(numbers(found.server) + clients) == list(range(400))
    # uniformly: a class has 100 of 400, so 25 of 100 with a hypergeometric standard deviation of 3.75
    assert (abs(np.bincount(found.server.y, minlength=4) - 25) < 5 * 3.75).all()


def test_natural_clients_lose_the_samples_drawn_for_the_server() -> None:
    plain = store(name=f"{HERE}:writers")
    found = store(name=f"{HERE}:writers", server_share=0.25, validation_share=0.1)
    assert found.server is not None
    assert len(found.server) == round(0.25 * N)
    server = set(numbers(found.server))
    for client in range(4):
        before = set(held_by(plain, client))
        assert held_by(found, client, "validation") == sorted(before - server)
        assert np.array_equal(plain.train.y[plain.train_shards[client]], np.sort(held_by(plain, client)) % 3)
        assert set(found.train.y[found.train_shards[client]]) <= {0, 1, 2}
        assert (found.train.y == np.asarray(found.train.x).ravel() % 3).all()


def test_the_server_draws_from_the_chosen_natural_clients_alone() -> None:
    plain = store(name=f"{HERE}:writers", clients=2)
    found = store(name=f"{HERE}:writers", clients=2, server_share=0.2)
    assert found.server is not None
    chosen = [number for client in range(2) for number in held_by(plain, client)]
    assert sorted(numbers(found.server) + held_by(found, 0) + held_by(found, 1)) == sorted(chosen)


def test_a_natural_client_that_loses_all_samples_to_the_server_is_named() -> None:
    with pytest.raises(DataError, match=r"client \d has no training samples .* or a smaller data\.server_share"):
        store(name=f"{HERE}:writers", server_share=0.95)


def test_additional_test_sets_of_the_source_keep_their_names() -> None:
    found = store(name=f"{HERE}:writers", validation_share=0.1)
    assert list(found.held_out) == ["validation", "sketches"]
    assert found.held_out["sketches"].shards is None
    assert numbers(found.held_out["sketches"].samples) == list(range(200, 206))


def test_the_summary_says_what_is_held_out() -> None:
    found = store(name=f"{HERE}:writers", validation_share=0.1, test_share=0.2, server_share=0.1)
    validation, test, _ = (len(part.samples) for part in found.held_out.values())
    assert found.summary().endswith(
        f"8 test samples, {validation} for validation by client, {test} for testing by client, 6 in sketches, "
        "8 on the server, 3 classes"
    )


def test_a_batch_source_serves_every_set_by_its_name() -> None:
    found = store(name=f"{HERE}:writers", validation_share=0.1, server_share=0.1)
    source = BatchSource(found, torch.device("cpu"))
    assert found.server is not None
    for name in ("train", "test", "validation", "sketches", "server"):
        samples = found.samples(name)
        x, y = source.batch(name, np.array([2, 0]))
        assert x.tolist() == np.asarray(samples.x)[[2, 0]].tolist()
        assert y.tolist() == samples.y[[2, 0]].tolist()
        plain = list(source.plain_batches(np.arange(3), 2, name))
        assert [len(y) for _, y in plain] == [2, 1]
        trained = source.training_batches(np.arange(3)[::-1], 2, np.random.default_rng(0), name=name)
        assert torch.cat([x for x, _ in trained]).tolist() == np.asarray(samples.x)[[2, 1, 0]].tolist()
    with pytest.raises(RayflError, match="no samples 'photos'; it has train, test, validation, sketches, server"):
        source.batch("photos", slice(2))


@pytest.mark.parametrize("key", ["test_share", "validation_share", "server_share"])
@pytest.mark.parametrize("wrong", [0, 1, -0.1, "some"])
def test_an_invalid_share_raises(key: str, wrong: Any) -> None:
    with pytest.raises(ValidationError, match=key):
        Data.model_validate({"name": "femnist", key: wrong})


def test_shares_that_leave_no_training_samples_raise() -> None:
    with pytest.raises(ValidationError, match=r"data\.test_share hold out 1\.1 of each client's samples"):
        Data.model_validate({"name": "femnist", "test_share": 0.5, "validation_share": 0.6})
    with pytest.raises(DataError, match=r"data\.server_share: 0\.9999 of 400 training samples leaves none"):
        store(clients=4, server_share=0.9999)


@pytest.mark.parametrize("name", ["train", "validation", "a test", ""])
def test_an_additional_test_set_needs_a_valid_name(name: str) -> None:
    samples = Samples(np.zeros((2, 1)), np.array([0, 1]))
    with pytest.raises(DataError, match=f"'{name}' cannot name a test set"):
        Dataset("d", samples, samples, 2, Provenance("arrays", ""), None, {name: samples})

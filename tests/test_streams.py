from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rayfl.streams import client_stream, client_torch_seed, stream, torch_seed

WORD = 2**64
purposes = st.text(alphabet=st.one_of(st.sampled_from("/%0123ab -"), st.characters(codec="utf-8")), max_size=8)
number = st.integers(0, 20)
seeds = st.one_of(number, st.integers(-(2**70), 2**70))
keys = st.tuples(seeds, purposes, number, number, number, number, number)


def key_of(generator: np.random.Generator) -> tuple[int, ...]:
    return tuple(generator.bit_generator.state["state"]["key"].tolist())


@given(keys, keys)
def test_different_requests_have_different_streams_and_seeds(one: Any, other: Any) -> None:
    assert (key_of(client_stream(*one)) == key_of(client_stream(*other))) == (one == other)
    assert (client_torch_seed(*one) == client_torch_seed(*other)) == (one == other)


@given(seeds, purposes, st.lists(number, max_size=3), seeds, purposes, st.lists(number, max_size=3))
def test_keys_of_any_number_of_counters_differ(  # type: ignore[no-untyped-def]
    seed, purpose, counters, seed2, purpose2, counters2
) -> None:
    same = (seed, purpose, counters) == (seed2, purpose2, counters2)
    assert (key_of(stream(seed, purpose, *counters)) == key_of(stream(seed2, purpose2, *counters2))) == same


@pytest.mark.parametrize(
    ("purpose", "counters"), [("noise/1", (2,)), ("noise", (1, 2)), ("noise%2F1", (2,)), ("1/noise", (1, 2))]
)
def test_a_purpose_with_a_slash_is_no_other_purpose_with_a_counter(purpose: str, counters: tuple[int, ...]) -> None:
    key = key_of(stream(0, purpose, *counters))
    others = [("noise/1", (2,)), ("noise", (1, 2)), ("noise%2F1", (2,)), ("1/noise", (1, 2))]
    others.remove((purpose, counters))
    assert key not in [key_of(stream(0, name, *numbers)) for name, numbers in others]


def test_the_first_request_of_the_first_exchange_has_the_key_of_the_client_update() -> None:
    assert key_of(client_stream(7, "order", 1, 30, 5)) == key_of(stream(7, "order", 1, 30, 5))
    assert client_torch_seed(7, "model", 1, 30, 5) == torch_seed(7, "model", 1, 30, 5)
    for later in ((0, 1), (1, 0), (1, 1)):
        assert key_of(client_stream(7, "order", 1, 30, 5, *later)) != key_of(stream(7, "order", 1, 30, 5))


def test_numbers_of_numpy_and_of_python_give_one_key() -> None:
    seed, round, client = np.int64(3), np.uint8(1), np.int32(4)
    assert key_of(stream(seed, "order", round, client)) == key_of(stream(3, "order", 1, 4))  # type: ignore[arg-type]


def philox(key: bytes, blocks: int) -> list[int]:
    """Philox4x64-10 as in Salmon et al., section 3.3, from counter 1, as NumPy counts."""
    words = []
    for block in range(1, blocks + 1):
        a, b, c, d = block, 0, 0, 0
        k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
        for _ in range(10):
            high0, low0 = divmod(0xD2E7470EE14C6C93 * a, WORD)
            high1, low1 = divmod(0xCA5A826395121157 * c, WORD)
            a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
            k0, k1 = (k0 + 0x9E3779B97F4A7C15) % WORD, (k1 + 0xBB67AE8584CAA73B) % WORD
        words += [a, b, c, d]
    return words


@pytest.mark.parametrize(
    ("generator", "text", "first"),
    [
        (stream(0, "cohort", 0, 1), "0/cohort/0/1", 0x3D6C7E0D7812CD7F),
        (stream(7, "initial"), "7/initial/", 0xFD78F51E59068B68),
        (client_stream(7, "order", 1, 30, 5), "7/order/1/30/5", 0x8C04BC0198FAE6C8),
        (client_stream(7, "order", 1, 30, 5, 2, 1), "7/order/1/30/5/2/1", 0x106F98D692160554),
        (client_stream(-1, "my noise/é", 1, 30, 5, 0, 1), "-1/my%20noise%2F%C3%A9/1/30/5/0/1", 0x2EE8DF3A0B7222DC),
    ],
)
def test_the_raw_words_of_a_key_are_those_of_philox_keyed_by_a_hash_of_its_text(
    generator: np.random.Generator, text: str, first: int
) -> None:
    key = hashlib.blake2b(text.encode(), digest_size=16).digest()
    words = [int(word) for word in generator.bit_generator.random_raw(8)]
    assert words == philox(key, 2)
    assert words[0] == first


def test_pytorch_seeds_are_golden() -> None:
    assert client_torch_seed(7, "model", 1, 30, 5) == 1993918237613717234
    assert client_torch_seed(7, "model", 1, 30, 5, 1, 2) == 6403541713720128324


def uniform(*key: Any) -> np.ndarray:
    return client_stream(*key).random(4096)


def test_streams_that_differ_in_one_number_are_uncorrelated() -> None:
    """Of 4096 independent pairs the correlation has a standard deviation of 1/64."""
    base: tuple[Any, ...] = (3, "order", 1, 2, 3, 1, 1)
    neighbours = [base, (4, *base[1:]), (3, "augment", *base[2:])]
    neighbours += [(*base[:place], base[place] + by, *base[place + 1 :]) for place in range(2, 7) for by in (-1, 1)]
    correlations = np.corrcoef([uniform(*key) for key in neighbours])[np.triu_indices(len(neighbours), 1)]
    assert np.abs(correlations).max() < 4.5 / 64
    # as many pairs as there are scatter as independent ones do
    assert np.std(correlations) * 64 == pytest.approx(1, abs=0.25)


def test_first_draws_of_many_streams_are_uniform() -> None:
    """Chi-squared over 64 bins: mean 63, standard deviation sqrt(126) = 11.2."""
    draws = [client_stream(0, "order", 0, round, client, 0, 1).random() for round in range(64) for client in range(64)]
    counts = np.bincount((np.array(draws) * 64).astype(int), minlength=64)
    assert abs(((counts - 64) ** 2 / 64).sum() - 63) < 4 * 11.2


def test_pytorch_generators_of_neighbouring_requests_are_uncorrelated() -> None:
    seeds = [client_torch_seed(0, "model", 0, 1, client, 0, request) for client in range(6) for request in range(2)]
    draws = [torch.rand(4096, generator=torch.Generator().manual_seed(seed)).numpy() for seed in seeds]
    assert np.abs(np.corrcoef(draws)[np.triu_indices(12, 1)]).max() < 4.5 / 64

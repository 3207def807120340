"""Counter-based random streams: a draw depends on the seed of the scenario and its purpose, never on order.

A stream is a Philox generator (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) whose
128-bit key is a hash of (seed, purpose, counters...). Two hosts with the same key draw the same numbers, and no stream
is shared, so neither placement nor the order of client updates can change a result.

A purpose is any text that describes the use of the numbers. Examples are `initial` (the initial parameters),
`partition`, `cohort` and, in a client update, `order` (of samples), `augment` and `model` (dropout).

The bytes of a key and the raw words of its generator are the same on every platform. Draws that NumPy and PyTorch
derive from them (permutations, normal variates) may change with their versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.random.bit_generator import ISeedSequence


def stream(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """Returns the random generator of one purpose.

    Args:
        seed: The scenario's seed.
        purpose: The use of the numbers.
        counters: Numbers that distinguish streams of this purpose, such as phase and round.

    Example:
        >>> from rayfl.data import stream
        >>> first = stream(0, "my noise", 3).normal()
        >>> first == stream(0, "my noise", 3).normal()
        True
        >>> first == stream(0, "my noise", 4).normal()
        False
    """
    key: Any = _Key(_digest(seed, purpose, counters))  # NumPy accepts it, despite its type hints
    return np.random.Generator(np.random.Philox(key))


def streams(seed: int, purpose: str, counters: Iterable[int]) -> Iterator[np.random.Generator]:
    """Yields `stream(seed, purpose, counter)` for every counter, a third of the time for each: the same object anew.

    Args:
        seed: As for `stream`.
        purpose: As for `stream`.
        counters: Numbers that distinguish the streams.
    """
    generator = stream(seed, purpose)
    bits: Any = generator.bit_generator
    start = bits.state
    key = start["state"]["key"]
    for counter in counters:
        key[:] = np.frombuffer(_digest(seed, purpose, (counter,)), "<u8")
        bits.state = start
        yield generator


def torch_seed(seed: int, purpose: str, *counters: int) -> int:
    """Returns a seed in [0, 2**63) for a PyTorch generator; arguments as for `stream`.

    PyTorch's CPU generator uses only the low 32 bits of its seed. Among a million client updates about a hundred pairs
    therefore share their dropout masks, though they never share a `stream`.
    """
    return int.from_bytes(_digest(seed, purpose, counters)[:8], "little") >> 1


def client_stream(
    seed: int, purpose: str, phase: int, round: int, client: int, exchange: int = 0, request: int = 0
) -> np.random.Generator:
    """Returns the random generator of one purpose in one request to a client.

    Args:
        seed: The scenario's seed.
        purpose: The use of the numbers.
        phase: Index of the phase.
        round: Number of the round.
        client: The client's id.
        exchange: Number of the exchange within the round, from 0.
        request: Number of the request among those of this purpose within the exchange, from 0.
    """
    return stream(seed, purpose, *_client_counters(phase, round, client, exchange, request))


def client_torch_seed(
    seed: int, purpose: str, phase: int, round: int, client: int, exchange: int = 0, request: int = 0
) -> int:
    """Returns a seed in [0, 2**63) for a PyTorch generator; arguments as for `client_stream`."""
    return torch_seed(seed, purpose, *_client_counters(phase, round, client, exchange, request))


def _client_counters(phase: int, round: int, client: int, exchange: int, request: int) -> tuple[int, ...]:
    """The counters of a request. The first one of the first exchange, often the only one, has the update's key."""
    first = exchange == 0 and request == 0
    return (phase, round, client) if first else (phase, round, client, exchange, request)


def _digest(seed: int, purpose: str, counters: tuple[int, ...]) -> bytes:
    """The 16 bytes of a key."""
    text = f"{seed}/{_quoted(purpose)}/" + "/".join(map(str, counters))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class _Key(ISeedSequence):
    """The key of a generator. With NumPy's argument `key` it would first ask the operating system for a seed."""

    def __init__(self, digest: bytes) -> None:
        self._words = np.frombuffer(digest, "<u8")

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        """The two words of the key, for any `n_words`: Philox asks for two."""
        return self._words


@lru_cache
def _quoted(purpose: str) -> str:
    """Keeps the slashes of a purpose apart from those between the parts of a key."""
    return quote(purpose, safe="")

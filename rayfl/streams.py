"""Counter-based random streams: a draw depends on the scenario's seed and on what it is for, never on order.

A stream is a Philox generator (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) whose
128-bit key is a hash of (seed, purpose, counters...). Two hosts that ask for the same key draw the same numbers, and
no stream is shared, so neither placement nor the order of client updates can change a result.

A purpose is any text that says what the numbers are for: `initial` (the initial parameters), `partition`, `cohort` or,
in a client update, `order` (of samples), `augment` and `model` (dropout), to name some of rayfl's own.

The bytes of a key and the raw words of its generator are the same on every platform. What NumPy and PyTorch make of
them (permutations, normal variates) may change with their versions.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.random.bit_generator import ISeedSequence


def stream(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """Returns the random generator of one purpose.

    Args:
        seed: The scenario's seed.
        purpose: What the numbers are for.
        counters: Whatever tells the streams of this purpose apart, such as phase and round.

    Example:
        >>> from rayfl.data import stream
        >>> first = stream(0, "my noise", 3).normal()
        >>> first == stream(0, "my noise", 3).normal()
        True
        >>> first == stream(0, "my noise", 4).normal()
        False
    """
    key: Any = _Key(_digest(seed, purpose, counters))  # NumPy takes it, though its type hints do not say so
    return np.random.Generator(np.random.Philox(key))


def torch_seed(seed: int, purpose: str, *counters: int) -> int:
    """Returns a seed in [0, 2**63) for a PyTorch generator; arguments as for `stream`.

    PyTorch's CPU generator uses the low 32 bits of its seed alone. Among a million client updates some hundred pairs
    therefore share their dropout masks, though they never share a `stream`.
    """
    return int.from_bytes(_digest(seed, purpose, counters)[:8], "little") >> 1


def client_stream(
    seed: int, purpose: str, phase: int, round: int, client: int, exchange: int = 0, request: int = 0
) -> np.random.Generator:
    """Returns the random generator of one purpose in one request to a client.

    Args:
        seed: The scenario's seed.
        purpose: What the numbers are for.
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
    """The first request of the first exchange has the key of the client update: most rounds have no other."""
    first = exchange == 0 and request == 0
    return (phase, round, client) if first else (phase, round, client, exchange, request)


def _digest(seed: int, purpose: str, counters: tuple[int, ...]) -> bytes:
    """The 16 bytes of a key."""
    text = f"{seed}/{_quoted(purpose)}/" + "/".join(map(str, counters))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class _Key(ISeedSequence):
    """The key of a generator; given as `key`, NumPy would first ask the operating system for a seed."""

    def __init__(self, digest: bytes) -> None:
        self._words = np.frombuffer(digest, "<u8")

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        """The two words of the key, whatever number is asked for: Philox wants no other."""
        return self._words


@lru_cache
def _quoted(purpose: str) -> str:
    """Keeps the slashes of a purpose apart from those between the parts of a key."""
    return quote(purpose, safe="")

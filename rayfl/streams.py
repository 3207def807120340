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
from urllib.parse import quote

import numpy as np


def stream(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """Returns the random generator of one purpose.

    Args:
        seed: The scenario's seed.
        purpose: What the numbers are for.
        counters: Whatever tells the streams of this purpose apart, such as phase and round.
    """
    key = int.from_bytes(_digest(seed, purpose, counters), "little")
    return np.random.Generator(np.random.Philox(key=key))


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
    """The 16 bytes of a key. Quoting the purpose keeps its slashes apart from those between the parts of a key."""
    text = f"{seed}/{quote(purpose, safe='')}/" + "/".join(str(counter) for counter in counters)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()

"""Counter-based random streams: every draw depends on the scenario's seed and on what it is for, never on order.

A stream is a Philox generator (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) whose
128-bit key is a hash of (seed, purpose, counters...). Two hosts that ask for the same key draw the same numbers;
no stream is shared, so neither placement nor the order of visits can change a result.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

Purpose = Literal["initial", "generate", "select", "partition", "cohort", "order", "augment", "model"]
"""What a stream is drawn for: the initial parameters, generated data, a choice of clients from the data, the
partition, a round's cohort, and, in a visit, the order of samples, their augmentation, and the model (dropout)."""


def _digest(seed: int, purpose: Purpose, counters: tuple[int, ...]) -> bytes:
    text = f"{seed}/{purpose}/" + "/".join(str(counter) for counter in counters)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def stream(seed: int, purpose: Purpose, *counters: int) -> np.random.Generator:
    """The generator of one purpose; `counters` are, say, phase, round and client."""
    key = int.from_bytes(_digest(seed, purpose, counters), "little")
    return np.random.Generator(np.random.Philox(key=key))


def torch_seed(seed: int, purpose: Purpose, *counters: int) -> int:
    """A 63-bit seed of the same kind for a torch generator."""
    return int.from_bytes(_digest(seed, purpose, counters)[:8], "little") >> 1

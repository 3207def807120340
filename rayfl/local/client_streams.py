"""A client's random streams in one exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rayfl.streams import client_stream, client_torch_seed


@dataclass(frozen=True)
class ClientStreams:
    """Keys of a client's random streams in one exchange; an algorithm reads it as `ClientContext.streams`.

    Attributes:
        seed: The scenario's seed.
        phase: Position of the phase, from 0.
        round: Position of the round within the scenario, from 1.
        exchange: Position of the exchange within its round, from 0.
        client: The client's number.

    Example:
        >>> from rayfl.local import ClientStreams
        >>> streams = ClientStreams(seed=0, phase=0, round=1, exchange=0, client=7)
        >>> first, again = streams.numpy("my noise"), streams.numpy("my noise")
        >>> bool((first.random(3) == again.random(3)).all())
        True
    """

    seed: int
    phase: int
    round: int
    exchange: int
    client: int

    def numpy(self, purpose: str, request: int = 0) -> np.random.Generator:
        """Returns a NumPy generator for a purpose.

        Args:
            purpose: A name for what is drawn; other names give independent streams.
            request: Counts the requests with this purpose in the exchange, from 0.
        """
        return client_stream(self.seed, purpose, self.phase, self.round, self.client, self.exchange, request)

    def torch_seed(self, purpose: str, request: int = 0) -> int:
        """Returns a 63-bit seed for PyTorch's generators; arguments as for `numpy`."""
        return client_torch_seed(self.seed, purpose, self.phase, self.round, self.client, self.exchange, request)

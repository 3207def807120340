"""Data of your own that comes client by client, such as a function of the client's number in pfl or TFF."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class ClientSource(Protocol):
    """The samples of every client, loaded one client at a time by the process that trains or evaluates the client.

    A source of data returns it in place of arrays: `{"train": source, "test": (x, y)}`. Clients count from 0, and are
    the natural clients of the data. The process that starts a run calls `sizes`, and `load` for a few clients, from
    which it knows shapes and dtypes; every worker process calls the source of data again. A process keeps the clients
    that it has loaded last, up to 64 MiB. `rayfl data prepare` loads every client once.

    The number of classes is that of the clients tried and of the other sets, unless the source has an attribute
    `num_classes`.

    Example:
        >>> import numpy as np
        >>> class Sensors:
        ...     num_classes = 2
        ...     def sizes(self):
        ...         return np.array([3, 5])
        ...     def load(self, client, rng):
        ...         x = rng.normal(client, 1, size=(self.sizes()[client], 4)).astype(np.float32)
        ...         return x, np.full(len(x), client)
        >>> from rayfl.data import ClientSource
        >>> isinstance(Sensors(), ClientSource)
        True
    """

    def sizes(self) -> Any:
        """[clients] integers: the number of samples of each client."""

    def load(self, client: int, rng: np.random.Generator, /) -> tuple[Any, Any]:
        """The samples of a client, the same whenever and wherever it is called.

        Args:
            client: Its number.
            rng: Its own random stream, which depends on the seed of the data and the client alone.

        Returns:
            Inputs [size, ...] and labels [size, ...], of the same shape and dtype for all clients.
        """

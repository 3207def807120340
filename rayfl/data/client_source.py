"""Data of your own that comes client by client, such as a function of the client's number in pfl or TFF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rayfl.data.formats.scratch import reserved
from rayfl.errors import DataError, RayflError
from rayfl.streams import stream
from rayfl.wording import report_as_theirs


@runtime_checkable
class ClientSource(Protocol):
    """The samples of every client, loaded one client at a time.

    A source returns it in place of arrays: `{"train": source, "test": (x, y)}`. Clients count from 0. Its samples
    are loaded into memory for a run, and into a file for `rayfl data prepare`, which holds one client at a time.

    Example:
        >>> import numpy as np
        >>> class Sensors:
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
        """The samples of a client.

        Args:
            client: Its number.
            rng: Its own random stream, which depends on the seed of the data and the client alone.

        Returns:
            Inputs [size, ...] and labels [size, ...], of the same shape and dtype for all clients.
        """


def with_clients_loaded(loaded: Any, seed: int, name: str) -> Any:
    """Replaces every `ClientSource` in the result of a source by (x, y, owners).

    Raises:
        DataError: A client has other samples than its size says, or than the first client has; or `load` raised.
    """
    if not isinstance(loaded, Mapping):
        return loaded
    return {
        part: _loaded(one, seed, part, f"data.name: '{name}': {part}") if isinstance(one, ClientSource) else one
        for part, one in loaded.items()
    }


def _loaded(source: ClientSource, seed: int, part: str, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sizes = np.asarray(_theirs(source.sizes, where))
    if sizes.ndim != 1 or not sizes.size or sizes.dtype.kind not in "ui" or sizes.min() < 0 or not sizes.sum():
        raise DataError(f"{where}: sizes() returned {sizes.dtype}{list(sizes.shape)}; return a number for each client")
    ends, arrays = np.cumsum(sizes), list[np.ndarray]()
    for client, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        what = f"{where}: client {client}"
        pair = _theirs(lambda number=client: source.load(number, stream(seed, f"client {part}", number)), what)
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise DataError(f"{what}: load() returned an object of type {type(pair).__name__}; return (x, y)")
        values = [np.asarray(one) for one in pair]
        if any(not one.ndim or len(one) != size for one in values):
            shapes = " and ".join(f"{one.dtype}{list(one.shape)}" for one in values)
            raise DataError(f"{what}: load() returned {shapes}, but sizes() says {size} samples")
        if not arrays:
            arrays = [reserved((int(ends[-1]), *one.shape[1:]), one.dtype) for one in values]
        for array, one in zip(arrays, values, strict=True):
            if (one.dtype, one.shape[1:]) != (array.dtype, array.shape[1:]):
                raise DataError(
                    f"{what}: load() returned {one.dtype}{list(one.shape[1:])} a sample, but {array.dtype}"
                    f"{list(array.shape[1:])} of the clients before"
                )
            array[end - size : end] = one
    return arrays[0], arrays[1], np.repeat(np.arange(len(sizes)), sizes)


def _theirs(call: Any, where: str) -> Any:
    try:
        return call()
    except RayflError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise DataError(report_as_theirs(error, where)) from None

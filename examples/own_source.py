"""Your own data: a source is a function that returns arrays or a rayfl.data.Dataset.

    python -m rayfl.scenario examples/own_source.toml --backend inline
    rayfl data examples/own_source.toml

rayfl passes what the function asks for by parameter name: `seed` (of the data), `clients` (their number, or None),
`data_dir` and `cache_dir` (pathlib.Path), `source` ("auto", "files" or "generated"). All other parameters are options
under [data.options], validated against their type hints.
"""

from __future__ import annotations

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from rayfl.data import stream


def sensors(
    seed: int, stations: PositiveInt = 12, drift: PositiveFloat = 0.5
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray] | tuple[np.ndarray, np.ndarray]]:
    """Weather stations that measure two quantities, each with its own offset; the class is the season.

    Returns:
        Sets of samples by name: (x, y), or (x, y, owner) if the data comes with clients. "train" and "test" are
        required; any other name is an additional test set. x [n, ...], y [n] integers from 0, owner [n] strings or
        integers; instead of an owner per row you can return the rows of every client, {"north": rows, ...}.
    """
    rng = stream(seed, "sensors")
    offset = drift * rng.normal(size=(stations, 2))

    def measured(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        owner = rng.integers(stations, size=number)
        owner[:stations] = np.arange(stations)  # every station measures something
        season = rng.integers(4, size=number)
        centre = 3 * np.stack([np.cos(season * np.pi / 2), np.sin(season * np.pi / 2)], axis=1)
        return centre + offset[owner] + rng.normal(size=(number, 2)), season, owner

    unknown_x, unknown_y, _ = measured(200)
    return {"train": measured(800), "test": measured(200), "noisy": (unknown_x + rng.normal(size=(200, 2)), unknown_y)}

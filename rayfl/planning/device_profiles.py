"""Capabilities of clients' simulated devices, drawn from the seed or read from traces once for a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.config.participation import Between, Devices, Kinds, LogNormal, Sessions, Traced
from rayfl.planning.device_traces import SessionTable, Traces
from rayfl.streams import stream


@dataclass(frozen=True)
class DeviceProfiles:
    """Capabilities of clients' devices; quantities that take no time or draw no power are missing.

    Attributes:
        quantities: float64 [clients] by key of [participation]: speeds, bandwidths, watts and probabilities.
        sessions: When clients are available, if given as intervals.
        files: Path and SHA-256 of the traces that were read.
    """

    quantities: Mapping[str, np.ndarray]
    sessions: SessionTable | None = None
    files: Sequence[tuple[str, str]] = field(default=())

    @property
    def digests(self) -> list[str]:
        """SHA-256 digests of the traces that were read."""
        return [digest for _, digest in self.files]

    def summary(self) -> str:
        """A one-line summary."""
        words = []
        for key, values in self.quantities.items():
            least, median, most = np.quantile(values, (0, 0.5, 1))
            if (key == "dropout" and most == 0) or (key == "availability" and least == 1):
                continue
            words.append(f"{key} {median:.4g}" if least == most else f"{key} {least:.4g} to {most:.4g}")
        return ", ".join([*words, *(["sessions of availability"] if self.sessions else [])])

    def of(self, key: str, client: int) -> float | None:
        """A client's quantity; None if it is missing."""
        values = self.quantities.get(key)
        return None if values is None else float(values[client])


def build_profiles(devices: Devices, seed: int, num_clients: int) -> DeviceProfiles:
    """Draws or reads the capabilities of clients' devices.

    Args:
        devices: The scenario's [participation].
        seed: The scenario's seed.
        num_clients: Number of clients.

    Raises:
        DataError: A trace is missing, damaged, or does not cover these clients; names file and column.
    """
    traces, quantities = Traces(seed, num_clients), {}
    for key in Devices.model_fields:
        given = getattr(devices, key)
        if given is None or isinstance(given, Sessions):
            continue
        if isinstance(given, Traced):
            most = 1.0 if key in ("dropout", "availability") else math.inf
            quantities[key] = traces.column(Path(given.file), given.column or key, f"participation.{key}", most)
        else:
            quantities[key] = _drawn(given, stream(seed, f"device {key}"), num_clients)
    sessions = traces.sessions(devices.availability) if isinstance(devices.availability, Sessions) else None
    return DeviceProfiles(quantities, sessions, traces.files)


def _drawn(given: Any, rng: np.random.Generator, num_clients: int) -> np.ndarray:
    match given:
        case Between(uniform=(least, most)):
            return rng.uniform(least, most, num_clients)
        case LogNormal(lognormal=(median, sigma)):
            return median * np.exp(sigma * rng.standard_normal(num_clients))
        case Kinds(kinds=numbers):
            return np.array(numbers)[rng.integers(len(numbers), size=num_clients)]
        case number:
            return np.full(num_clients, float(number))

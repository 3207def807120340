"""What rayfl raises, and its words: every message names the key, file, client, host or limit, and what to change."""

from __future__ import annotations


class RayflError(Exception):
    """Base of all errors that rayfl raises for its user; its text is complete without a traceback."""


class ScenarioError(RayflError):
    """A scenario that cannot be found, read or validated."""


class DataError(RayflError):
    """Data that is missing, damaged or does not fit the scenario."""


class ResourceError(RayflError):
    """Resources (CPUs, GPUs, a Ray cluster, a writable folder) that are not there."""


class ClientError(RayflError):
    """A visit that failed: says which client, on which host, in which phase and round, and why.

    `detail` is the traceback of the host where the client's code raised, or one sentence when the
    visit itself went wrong (a loss that is not a number, an update outside the exact sum's range).
    """

    def __init__(self, client: int, host: int, phase: str, round: int, detail: str) -> None:
        super().__init__(client, host, phase, round, detail)
        self.client, self.host, self.phase, self.round, self.detail = client, host, phase, round, detail

    def __str__(self) -> str:
        return f"client {self.client} on host {self.host}, phase '{self.phase}', round {self.round}: {self.detail}"

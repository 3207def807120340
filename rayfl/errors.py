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


class CheckpointError(ResourceError):
    """Nothing that a run has written to go on from can be used; it can only begin again."""


class LostError(ResourceError):
    """Something that a run had in memory died or does not answer; the run can go on from what it has written."""


class DivergenceError(RayflError):
    """Training diverged: a loss, a parameter or an update is not finite, or too large for any sound training."""


class ClientError(RayflError):
    """A client update failed: says which client, on which host, in which phase and round, and why.

    Attributes:
        detail: The traceback from the host where the client's code raised, or one sentence where the update itself
            went wrong.
        diverged: Whether the reason is divergence.
        who: Who it was, if not a client: "the pooled samples".
    """

    def __init__(
        self, client: int, host: int, phase: str, round: int, detail: str, diverged: bool = False, who: str = ""
    ) -> None:
        super().__init__(client, host, phase, round, detail, diverged, who)
        self.client, self.host, self.phase, self.round, self.detail = client, host, phase, round, detail
        self.diverged, self.who = diverged, who or f"client {client}"

    def __str__(self) -> str:
        return f"{self.who} on host {self.host}, phase '{self.phase}', round {self.round}: {self.detail}"

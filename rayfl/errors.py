"""The errors that rayfl raises. Messages name the key, file, client, worker or limit, and what to change."""

from __future__ import annotations


class RayflError(Exception):
    """Base class of all errors that rayfl raises for you; the message is complete without a traceback.

    Example:
        >>> import rayfl
        >>> try:
        ...     rayfl.load_scenario("no_such_scenario")
        ... except rayfl.RayflError as error:
        ...     print(type(error).__name__)
        ScenarioError
    """


class ScenarioError(RayflError):
    """A scenario cannot be found, read or validated; the message names the key and what is allowed.

    Example:
        >>> import rayfl
        >>> try:
        ...     rayfl.load_scenario("femnist_fedavg", {"phases.federated.cohort": 2.5})
        ... except rayfl.ScenarioError as error:
        ...     print("cohort" in str(error), "a share" in str(error))
        True True
    """


class DataError(RayflError):
    """Data is missing or damaged, or does not fit the scenario.

    Example:
        >>> import rayfl
        >>> rayfl.run("femnist_fedavg", data_dir="no_such_folder", backend="inline")
        Traceback (most recent call last):
        rayfl.errors.DataError: ...'no_such_folder'...
    """


class ResourceError(RayflError):
    """A resource is not available: CPUs, GPUs, memory, a Ray cluster or a writable folder."""


class CheckpointError(ResourceError):
    """None of a run's checkpoints is usable; start the run again."""


class LostError(ResourceError):
    """A process of the run died or does not answer; the run can resume from its last checkpoint."""


class StateLostError(LostError):
    """A worker process that was restarted no longer has the state of a client."""


class DivergenceError(RayflError):
    """Training diverged: a loss, a parameter or an update is not finite, or is too large to be plausible.

    Divergence within a client update raises `rayfl.errors.ClientError`, another `RayflError`, which names the client.
    """


class ClientError(RayflError):
    """A client update failed; the message names the client, worker process, phase and round, and the reason.

    Attributes:
        client: The client's number.
        host: The worker process's number.
        phase: The phase's name.
        round: The round within the scenario.
        detail: The traceback if your code raised, or one sentence if rayfl rejected the update.
        diverged: Whether the update failed because training diverged.
        who: Name of what trained in messages, such as "client 3" or "central training".
    """

    def __init__(
        self, client: int, host: int, phase: str, round: int, detail: str, diverged: bool = False, who: str = ""
    ) -> None:
        super().__init__(client, host, phase, round, detail, diverged, who)
        self.client, self.host, self.phase, self.round, self.detail = client, host, phase, round, detail
        self.diverged, self.who = diverged, who or f"client {client}"

    def __str__(self) -> str:
        return f"{self.who} on worker {self.host}, phase '{self.phase}', round {self.round}: {self.detail}"

"""The number of clients that share the samples."""

from __future__ import annotations

from rayfl.errors import DataError, ScenarioError


def client_count(clients: int | None, rows: int) -> int:
    """Returns `clients` after checking that it is a number, and at most the number of samples.

    Args:
        clients: Number of clients; None if the scenario gives none.
        rows: Number of training samples.

    Raises:
        ScenarioError: No number is given.
        DataError: There are more clients than samples.
    """
    if clients is None:
        raise ScenarioError("data.clients: needs a number")
    if clients > rows:
        raise DataError(f"data.clients: {clients} clients cannot share {rows} training rows; choose at most {rows}")
    return clients

"""Checks of what a scenario asks of a partitioner."""

from __future__ import annotations

import math

from rayfl.errors import DataError, ScenarioError


def whole_number(value: object, key: str, least: int) -> int:
    """`value`, an integer of at least `least`; ScenarioError naming `key` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ScenarioError(f"{key}: must be a whole number of at least {least}, not {value!r}")
    return value


def positive_number(value: object, key: str) -> float:
    """`value`, a finite number above 0; ScenarioError naming `key` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ScenarioError(f"{key}: must be a number above 0, not {value!r}")
    return float(value)


def client_count(clients: int | None, rows: int) -> int:
    """How many clients `rows` rows are dealt to.

    Raises:
        ScenarioError: no number was given.
        DataError: there are more clients than rows.
    """
    if clients is None:
        raise ScenarioError("data.clients: needs a number")
    clients = whole_number(clients, "data.clients", least=1)
    if clients > rows:
        raise DataError(f"data.clients: {clients} clients cannot share {rows} training rows; choose at most {rows}")
    return clients

"""How many clients the rows are dealt to."""

from __future__ import annotations

from rayfl.errors import DataError, ScenarioError


def client_count(clients: int | None, rows: int) -> int:
    """`clients`, once it is known to be a number that `rows` rows can be dealt to.

    Raises:
        ScenarioError: No number was given.
        DataError: There are more clients than rows.
    """
    if clients is None:
        raise ScenarioError("data.clients: needs a number")
    if clients > rows:
        raise DataError(f"data.clients: {clients} clients cannot share {rows} training rows; choose at most {rows}")
    return clients

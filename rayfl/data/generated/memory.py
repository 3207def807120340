"""Rejects more generated clients than this machine has memory for, before the first is generated."""

from __future__ import annotations

import psutil

from rayfl.errors import ScenarioError


def check_memory(clients: int, bytes_each: int) -> None:
    """Checks that the samples of generated clients fit into memory.

    Args:
        clients: Number of clients.
        bytes_each: Mean size of a client's samples.

    Raises:
        ScenarioError: They do not.
    """
    limit = machine_bytes()
    if clients * bytes_each > limit:
        raise ScenarioError(
            f"data.clients: the samples of {clients:,} generated clients take {clients * bytes_each / 2**30:,.0f} GB, "
            f"but this machine has {limit / 2**30:,.0f} GB; choose at most {limit // bytes_each:,}"
        )


def machine_bytes() -> int:
    """Physical memory of this machine."""
    return int(psutil.virtual_memory().total)

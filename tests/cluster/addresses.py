"""Loopback addresses for the nodes of clusters that tests start."""

from __future__ import annotations

import os

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def loopback(node: int) -> str:
    """The address of a node: tests in other processes have others, since agents of Ray compete for a port on one."""
    return f"127.0.{WORKER}.{node}"

"""Attaching to a Ray cluster, or starting one on this machine."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.exceptions import RayError

from rayfl.errors import ResourceError

REACH_TIMEOUT_S = 5.0


@contextmanager
def attached(address: str | None, workers_print: bool = True) -> Iterator[None]:
    """Connected to Ray inside the block. What workers print is shown here too, unless `workers_print` is false.

    A connection that the program already has is used and left open. Otherwise `address`, else RAY_ADDRESS (which
    `ray job submit` sets), names the cluster; without either, Ray is started on this machine and stopped afterwards.

    Raises:
        ResourceError: nobody answers at the address, or it is Ray Client's, or the cluster refuses us.
    """
    if ray.is_initialized():
        _check_is_ours(address)
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        _check_reachable(address)
    try:
        if address:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=workers_print)
        else:
            ray.init(address="local", include_dashboard=False, logging_level=logging.ERROR, log_to_driver=workers_print)
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        raise ResourceError(
            f"no Ray cluster to work with at {address or 'this machine'}: {error}\n"
            "(a cluster that was started with RAY_AUTH_MODE=token wants the same setting, and its token, here)"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_is_ours(address: str | None) -> None:
    connected = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", connected):
        raise ResourceError(
            f"this program is connected to the Ray cluster at {connected}, not to {address}: leave the address out, or "
            "call ray.shutdown() first"
        )


def _check_reachable(address: str) -> None:
    """Ray itself keeps trying for a long time; one connection attempt says as much."""
    if address.startswith("ray://"):
        raise ResourceError(
            f"{address} is Ray Client's, which is too slow for models: run on the cluster with --address auto, "
            "or submit a job (ray job submit --working-dir . -- python -m rayfl.scenario ...)"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_TIMEOUT_S).close()
    except OSError as error:
        raise ResourceError(
            f"no Ray cluster answers at {address} ({error}): start one (ray start --head), check the address, "
            "or leave it out to run on this machine alone"
        ) from error

"""Attaching to a Ray cluster, or starting one on this machine."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import grpc
import ray

from rayfl.backends.ray.kept_cluster import CONNECTION, wait_for_given_up
from rayfl.backends.ray.private import (
    CLUSTER_ID,
    find_bootstrap_address,
    find_gcs_addresses,
    init_grpc_channel,
    without_api_server,
)
from rayfl.errors import ResourceError, ScenarioError
from rayfl.interruption import hangup_blocked, sigterm_handler_kept

REACH_TIMEOUT_S = 5.0
"""For each of two checks of an address: whether it accepts a connection, and whether it answers like Ray."""

START_TRIES = 3
"""How often to try to start Ray."""

NOT_RAY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED}
"""Status codes if no server, or one that is not Ray, answers. Ray explains failures other than these."""

TOKEN_HINT = "(if the cluster was started with RAY_AUTH_MODE=token, set that and its token here too)"


@contextmanager
def attached(address: str | None, workers_print: bool = True, dashboard: bool = False) -> Iterator[str | None]:
    """Keeps a connection to Ray for the duration of the block.

    If the program is already connected, that connection is used and left open. Otherwise `address`, else RAY_ADDRESS
    (which `ray job submit` sets), names the cluster; without either, Ray is started on this machine and stopped
    afterwards. A process has a single connection to Ray, so other threads wait here until it is closed.

    Args:
        address: The head node's `host:port`, or `auto` for the cluster this machine belongs to.
        workers_print: Whether to show the workers' output here too.
        dashboard: Whether to start Ray with its dashboard.

    Yields:
        The address of the dashboard, if this started one.

    Raises:
        ScenarioError: A dashboard is requested, but Ray is not started here.
        ResourceError: Nothing answers at the address, something other than a Ray cluster does, or the cluster rejects
            the connection.
    """
    with ExitStack() as connecting:
        connecting.enter_context(CONNECTION)
        wait_for_given_up()
        if ray.is_initialized():
            _check_is_ours(address)
            check_dashboard(dashboard)
            connecting.close()
            yield None
            return
        url = connect(address, workers_print, dashboard)
        connecting.callback(ray.shutdown)
        yield url


def connected(address: str | None) -> None:
    """Connects this program to an existing cluster, if it is not connected yet, and leaves the connection open.

    Args:
        address: As for `attached`, but Ray is not started on this machine.

    Raises:
        ResourceError: As `attached`, or neither a connection nor `address` nor RAY_ADDRESS names a cluster.
    """
    with CONNECTION:
        wait_for_given_up()
        if ray.is_initialized():
            _check_is_ours(address)
        elif address or os.environ.get("RAY_ADDRESS"):
            _connect(address, workers_print=False)
        else:
            raise ResourceError(
                "a submitted run needs a cluster that outlives this program: start one (ray start --head) and pass its "
                "address (address='auto'), or use rayfl.run"
            )


def connect(address: str | None, workers_print: bool = True, dashboard: bool = False) -> str | None:
    """Makes the connection that `attached` keeps.

    Returns:
        The address of the dashboard, if this starts one.

    Raises:
        ScenarioError: As `attached`.
        ResourceError: As `attached`.
    """
    url = _connect(address, workers_print, dashboard)
    # rayfl reports errors itself; Ray would repeat what actors raise while they are being ended
    os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
    return url


def _connect(address: str | None, workers_print: bool, dashboard: bool = False) -> str | None:
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        check_dashboard(dashboard)
        check_is_cluster(address)
    level, url = logging.ERROR, None
    try:
        with sigterm_handler_kept(), hangup_blocked():
            if address:
                ray.init(address=address, logging_level=level, log_to_driver=workers_print)
            else:
                context = _started(
                    include_dashboard=dashboard,
                    dashboard_host="127.0.0.1",
                    logging_level=level,
                    log_to_driver=workers_print,
                )
                url = f"http://{context.dashboard_url}" if dashboard else None
    except Exception as error:
        failed = f"cannot connect to a Ray cluster at {address}" if address else "cannot start Ray on this machine"
        raise ResourceError(f"{failed}: {error}\n{TOKEN_HINT}") from error
    return url


def _started(**options: Any) -> Any:
    """Starts Ray on this machine; tries again if that takes longer than Ray waits, as on a busy machine."""
    for number in range(2, START_TRIES + 1):
        try:
            return _init_local(**options)
        except Exception as error:  # Ray raises a plain Exception
            if "timed out" not in str(error):
                raise
            warning = "Ray did not start in time, as on a busy machine; trying again"
            print(f"warning: {warning} ({number} of {START_TRIES})", file=sys.stderr)
    return _init_local(**options)


def _init_local(**options: Any) -> Any:
    with nullcontext() if options["include_dashboard"] else without_api_server():
        return ray.init(address="local", **options)


def check_dashboard(dashboard: bool) -> None:
    """Rejects `resources.dashboard` if Ray is not started here."""
    if dashboard:
        raise ScenarioError(
            "resources.dashboard: has no effect on an existing cluster, which has its own dashboard; leave it out"
        )


def _check_is_ours(address: str | None) -> None:
    connected = ray.get_runtime_context().gcs_address
    if address not in (None, "auto") and not _same_address(address, connected):
        raise ResourceError(
            f"this program is already connected to the Ray cluster at {connected}, not to {address}: leave the address "
            "out, or call ray.shutdown() first"
        )


def _same_address(one: str, other: str) -> bool:
    """Whether two `host:port` are the same socket; resolves host names, and treats loopback as this node."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    return port == other_port and not _addresses(host).isdisjoint(_addresses(other_host))


def _addresses(host: str) -> set[str]:
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return {host}
    # Ray itself replaces 127.0.0.1 by the node's address
    return addresses | ({ray.util.get_node_ip_address()} if addresses & {"127.0.0.1", "::1"} else set())


def check_is_cluster(address: str) -> None:
    """Checks that a Ray cluster answers at an address, since Ray itself retries for a minute and then ends the process.

    Raises:
        ResourceError: There is no Ray cluster at the address.
    """
    if address.startswith("ray://"):
        raise ResourceError(
            f"{address} is a Ray Client address, which is too slow for models: run on the cluster with --address auto, "
            "or submit a job (ray job submit --working-dir . -- python -m rayfl.scenario ...)"
        )
    if address.startswith(("http://", "https://")):
        raise ResourceError(
            f"{address} is the address of Ray's dashboard, which accepts jobs: submit the run as a job (ray job submit "
            f"--address {address} --working-dir . -- python -m rayfl.scenario ...), or, on a node of the cluster, use "
            "--address auto or the head node's host:port (port 6379 by default); RAY_ADDRESS works too"
        )
    if address == "auto":
        address = local_address()
        if not address:
            raise ResourceError(
                "no Ray cluster runs on this machine: start one (ray start --head), or name the head node's host:port "
                "(only `rayfl run` and `rayfl grid` need no cluster)"
            )
        if "RAY_AUTH_MODE" not in os.environ and token_from(os.environ, Path.home()):
            return  # Ray then sends the token that it finds
    if "://" in address or address == "local":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ResourceError(
            f"'{address}' is not the address of a Ray cluster: write host:port (ray start --head prints it), or auto "
            "for the cluster that this machine belongs to"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise ResourceError(
            f"no Ray cluster answers at {address} ({error}): start one (ray start --head), check the address, "
            "or leave it out to run on this machine only"
        ) from error
    code = _answer(address)
    if code in NOT_RAY:
        raise ResourceError(
            f"a server listens at {address}, but it does not answer like the head of a Ray cluster: check the port "
            "(ray start --head prints it, 6379 by default; 8265 is the dashboard's), or leave the address out to run "
            "on this machine only"
        )
    if code is grpc.StatusCode.UNAUTHENTICATED:
        raise ResourceError(
            f"the Ray cluster at {address} requires the token that it was started with: set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN_PATH to a file with the token (RAY_AUTH_TOKEN, where it is set, counts instead)"
        )


def local_address() -> str:
    """The address that Ray takes for `auto`; empty if no cluster runs on this machine."""
    named = os.environ.get("RAY_ADDRESS", "")
    if named not in ("", "auto", "local"):
        return named
    running = find_gcs_addresses()
    return find_bootstrap_address(None) or next(iter(running), "")


def token_from(environment: Mapping[str, str], home: Path) -> str:
    """Where Ray finds its token, in Ray's own order; empty if there is none."""
    if environment.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    if path := environment.get("RAY_AUTH_TOKEN_PATH"):
        return path if Path(path).is_file() else ""
    default = home / ".ray" / "auth_token"
    return str(default) if default.is_file() else ""


def _answer(address: str) -> grpc.StatusCode:
    """Returns the status with which the server at the address answers a program that asks to join."""
    try:
        with init_grpc_channel(address) as channel:
            ask = channel.unary_unary(CLUSTER_ID, request_serializer=bytes, response_deserializer=bytes)
            ask(b"", timeout=REACH_TIMEOUT_S)
    except ray.exceptions.AuthenticationError:  # there is no token to ask with
        return grpc.StatusCode.UNAUTHENTICATED
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK

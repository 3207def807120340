"""Everything private in Ray that rayfl uses; tests/backends/ray/test_contracts.py has a test for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray._private.worker as worker
from ray._common.utils import get_default_ray_temp_dir
from ray._private.grpc_utils import init_grpc_channel
from ray._private.internal_api import node_stats
from ray._private.node import Node
from ray._private.ray_logging import global_worker_stdstream_dispatcher as dispatcher
from ray._private.services import find_bootstrap_address, find_gcs_addresses
from ray._private.state import actors, available_resources_per_node, state

__all__ = [
    "CLUSTER_ID",
    "actor_id",
    "available_resources_per_node",
    "draining_nodes",
    "find_bootstrap_address",
    "find_gcs_addresses",
    "in_tune_session",
    "init_grpc_channel",
    "message_printer",
    "node_stats",
    "output_printers",
    "print_messages_with",
    "print_output_with",
    "restarts",
    "started_cluster",
    "temporary_folder",
    "without_api_server",
]

CLUSTER_ID = "/ray.rpc.NodeInfoGcsService/GetClusterId"
"""The first request of any program that joins a Ray cluster."""

OUTPUT_HANDLER = "ray_print_logs"
"""Ray's name of the handler that prints the workers' output on the driver's terminal."""


def actor_id(actor: Any) -> str:
    """An actor's id in hexadecimal digits."""
    return str(actor._actor_id.hex())


def restarts(actor: Any) -> int:
    """How often Ray has restarted an actor."""
    return int(actors(actor_id(actor)).get("NumRestarts", 0))


def draining_nodes() -> set[str]:
    """The ids of nodes that are about to go, and take no more work."""
    return set(state.get_draining_nodes())


def started_cluster() -> bool:
    """Whether this program started the cluster that it is connected to."""
    node: Any = worker._global_node
    return node is not None and bool(node.is_head())


@contextmanager
def without_api_server() -> Iterator[None]:
    """Makes `ray.init` start no API server for the duration of the block.

    Without the dashboard this process only reports usage statistics to Ray's authors, and yet `ray.init` waits until
    it runs.
    """
    node: Any = Node
    start = node.start_api_server
    node.start_api_server = lambda node, **options: None
    try:
        yield
    finally:
        node.start_api_server = start


def temporary_folder() -> Path:
    """Ray's folder for the files of its sessions."""
    return Path(get_default_ray_temp_dir())


def message_printer() -> Any:
    """The function with which Ray prints the raylet's messages on the driver's terminal."""
    return worker.print_to_stdstream


def print_messages_with(printer: Any) -> None:
    """Replaces the function with which Ray prints the raylet's messages."""
    worker.print_to_stdstream = printer


def output_printers() -> list[Any]:
    """The functions with which Ray prints the workers' output on the driver's terminal."""
    return [handler for name, handler in dispatcher.handlers if name == OUTPUT_HANDLER]


def print_output_with(printers: Sequence[Callable[[Any], None]]) -> None:
    """Replaces the functions with which Ray prints the workers' output."""
    dispatcher.remove_handler(OUTPUT_HANDLER)
    for printer in printers:
        dispatcher.add_handler(OUTPUT_HANDLER, printer)


def in_tune_session() -> bool:
    """Whether this program is a function that Ray Tune runs as a trial; imports Ray Tune."""
    from ray.tune.trainable.trainable_fn_utils import _in_tune_session

    return bool(_in_tune_session())

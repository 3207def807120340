from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import ray
from ray._private import worker as ray_worker
from ray._private.node import Node

from rayfl.backends.ray import connection
from rayfl.backends.ray.connection import attached
from rayfl.backends.ray.private import CLUSTER_ID, started_cluster
from rayfl.errors import ResourceError


def error_at(address: str) -> str:
    with pytest.raises(ResourceError) as caught, attached(address):
        pass
    return str(caught.value)


@pytest.fixture
def http_port() -> Iterator[int]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_an_address_without_a_server_is_reported_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        port = taken.getsockname()[1]
        assert f"no Ray cluster answers at 127.0.0.1:{port}" in error_at(f"127.0.0.1:{port}")


def test_a_server_that_never_answers_is_no_ray_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REACH_TIMEOUT_S", 1.0)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        assert f"a server listens at {address}, but it does not answer like the head" in error_at(address)


def test_a_web_server_is_no_ray_cluster(http_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REACH_TIMEOUT_S", 1.0)
    said = error_at(f"127.0.0.1:{http_port}")
    assert "does not answer like the head of a Ray cluster: check the port" in said


def test_another_answer_is_awaited_for_ten_seconds_at_most() -> None:
    assert 2 * connection.REACH_TIMEOUT_S <= 10


@pytest.fixture
def guarded_port() -> Iterator[int]:
    """A server that accepts no token, as a Ray cluster with another one."""

    def refuse(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
        raise AssertionError("abort raises")

    server = grpc.server(futures.ThreadPoolExecutor(1))
    service, method = CLUSTER_ID.strip("/").split("/")
    handler = grpc.unary_unary_rpc_method_handler(refuse)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


@pytest.mark.parametrize("mode", ["", "token"])
def test_a_cluster_with_another_token_is_said_to_want_its_own(
    mode: str, guarded_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    said = (
        f"the Ray cluster at 127.0.0.1:{guarded_port} requires the token that it was started with: set RAY_AUTH_MODE="
    )
    assert said in error_at(f"127.0.0.1:{guarded_port}")


def test_auto_wants_the_token_as_at_once_as_an_address_does(
    guarded_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(connection, "find_bootstrap_address", lambda _: f"127.0.0.1:{guarded_port}")
    assert f"the Ray cluster at 127.0.0.1:{guarded_port} requires the token" in error_at("auto")


def test_auto_without_a_cluster_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connection, "find_bootstrap_address", lambda _: None)
    monkeypatch.setattr(connection, "find_gcs_addresses", set)
    said = error_at("auto")
    assert said.startswith("no Ray cluster runs on this machine: start one (ray start --head)")
    assert "\n" not in said


@pytest.mark.parametrize("failures", [2, 3])
def test_ray_that_takes_too_long_to_start_is_started_again_twice(
    failures: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[str]()

    def start(address: str, **_: object) -> None:
        asked.append(address)
        if len(asked) <= failures:
            raise Exception("The current node timed out during startup.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(ResourceError, match="cannot start Ray") if failures == 3 else nullcontext(), attached(None):
        pass
    assert asked == ["local"] * 3
    said = "warning: Ray did not start in time, as on a busy machine; trying again"
    assert capsys.readouterr().err.splitlines() == [f"{said} (2 of 3)", f"{said} (3 of 3)"]


@pytest.mark.parametrize("dashboard", [True, False])
def test_ray_starts_its_api_server_only_for_the_dashboard(dashboard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, starts_it = Node.start_api_server, list[bool]()

    def start(**_: object) -> SimpleNamespace:
        starts_it.append(Node.start_api_server is whole)
        return SimpleNamespace(dashboard_url="127.0.0.1:8265")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with attached(None, dashboard=dashboard):
        assert Node.start_api_server is whole
    assert starts_it == [dashboard]


def test_text_that_is_no_address_is_said_to_be_none() -> None:
    assert "'nonsense' is not the address of a Ray cluster: write host:port" in error_at("nonsense")


def test_ray_client_is_rejected_with_what_to_do_instead() -> None:
    assert "too slow for models: run on the cluster with --address auto" in error_at("ray://127.0.0.1:10001")


def test_the_dashboards_address_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "is the address of Ray's dashboard, which accepts jobs: submit the run as a job (ray job submit --address"
    assert said in error_at("http://127.0.0.1:8265")
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(ResourceError, match="Ray's dashboard"), attached(None):
        pass


def test_threads_take_turns_with_a_connection_of_rayfls_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray knows one connection in a process; a second ray.init would raise, a shutdown end the other thread's run."""
    connected: list[str] = []
    seen: list[int] = []

    def connect(**_: object) -> None:
        assert not connected
        connected.append("cluster")

    monkeypatch.setattr(ray, "init", connect)
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(connected))
    monkeypatch.setattr(ray, "shutdown", connected.clear)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def run() -> None:
        with attached(None):
            time.sleep(0.05)
            seen.append(len(connected))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seen, connected) == ([1, 1, 1, 1], [])


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_real_head_node_answers_like_one() -> None:
    assert connection._answer(ray.get_runtime_context().gcs_address) is grpc.StatusCode.OK


def test_a_program_without_a_cluster_is_told_what_a_submitted_run_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ResourceError, match=r"a submitted run needs a cluster .*: start one \(ray start --head\)"):
        connection.connected(None)


@pytest.mark.parametrize("is_head", [True, False])
def test_a_cluster_that_this_program_has_started_is_known_to_end_with_it(
    is_head: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray._private.worker._global_node", SimpleNamespace(is_head=lambda: is_head))
    assert started_cluster() is is_head


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_that_a_program_starts_requires_its_token() -> None:
    """Its ports are open on all interfaces."""
    with grpc.insecure_channel(ray.get_runtime_context().gcs_address) as channel:
        ask = channel.unary_unary(CLUSTER_ID, request_serializer=bytes, response_deserializer=bytes)
        with pytest.raises(grpc.RpcError) as refused:
            ask(b"", timeout=10)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_ray_works_without_its_api_server() -> None:
    node: Any = ray_worker._global_node
    processes = node.all_processes
    assert "dashboard" not in processes
    assert {"gcs_server", "raylet"} <= set(processes)
    assert ray.get(ray.remote(num_cpus=0)(lambda: 1).remote()) == 1

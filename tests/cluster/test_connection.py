from __future__ import annotations

import socket

import pytest

from rayfl.cluster.connection import attached
from rayfl.errors import ResourceError


def test_an_address_nobody_answers_at_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = taken.getsockname()[1]
        with (
            pytest.raises(ResourceError, match=f"no Ray cluster answers at 127.0.0.1:{port}"),
            attached(f"127.0.0.1:{port}"),
        ):
            pass


def test_ray_client_is_refused_with_what_to_do_instead() -> None:
    with (
        pytest.raises(ResourceError, match=r"too slow for models: run on the cluster with --address auto"),
        attached("ray://127.0.0.1:10001"),
    ):
        pass

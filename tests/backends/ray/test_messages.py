"""Every algorithm where hosts and server are other processes: what they send survives it, and nobody writes into it.

As Ray does, arguments and results are pickled, and arrays arrive as views of memory that cannot be written to.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.host import Host
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.models.tensors import split
from tests.backends.ray.test_algorithms_on_ray import SCENARIOS
from tests.engine.scenes import prepared, run_on_hosts, without_clock


def sent(value: Any) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(pickled, buffers=[bytes(buffer) for buffer in buffers])  # noqa: S301 - made here


class Remote:
    """An object that is called as an actor is."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, method: str) -> Any:
        return lambda *arguments: sent(getattr(self._target, method)(*sent(arguments)))


@pytest.mark.takes("every algorithm trains, twice")
@pytest.mark.parametrize("name", SCENARIOS)
def test_models_and_events_are_the_same_if_all_is_sent(name: str) -> None:
    job = prepared(**SCENARIOS[name])
    expected, expected_events = run_on_hosts(job, 1)
    given, shared = sent(job), job.without_data()
    server: Any = Remote(Server(sent(shared)))
    hosts: list[Any] = [Remote(Host(index, given)) for index in range(2)]
    events = list(Scheduler(sent(shared), InlineBackend(hosts, server)).run())
    assert np.array_equal(split(server.committed()[1])[0], expected)
    assert repr(without_clock(events)) == repr(without_clock(expected_events))

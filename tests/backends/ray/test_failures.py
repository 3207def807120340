"""Ray's errors in our words, with Ray's numbers."""

from __future__ import annotations

import pytest
import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, OutOfMemoryError

from rayfl.backends.ray.failures import Started, as_rayfl_error, take_ray_text
from rayfl.errors import LostError, ResourceError

KILLED = (
    "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 10.0.0.7, ID: 637eb0bc) "
    "was 22.50GB used / 23.54GB limit (0.955000)\nOOM kill reason: Memory usage exceeded threshold"
)
OF_EARLIER_RAY = (
    "Memory on the node (IP: 10.0.0.7, ID: 637eb0bc) where the task was running was 22.50GB / 23.54GB (0.95)"
)


@pytest.mark.parametrize("text", [KILLED, OF_EARLIER_RAY])
def test_a_node_without_memory_is_named_with_how_much_it_has(text: str) -> None:
    told = as_rayfl_error(OutOfMemoryError(text), {})
    assert isinstance(told, LostError)  # somewhere else, or later, there may be room
    assert "node 10.0.0.7 ran out of memory (22.50GB of 23.54GB in use); start fewer workers" in str(told)
    assert take_ray_text(told) == text


@pytest.mark.parametrize(("error", "also"), [(ObjectStoreFullError, False), (OutOfDiskError, True)])
def test_a_full_object_store_is_named_with_its_size(
    error: type[Exception], also: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = {"NodeManagerAddress": "10.0.0.7", "Resources": {"object_store_memory": 100 * 2**20}}
    dead = {"NodeManagerAddress": "10.0.0.8", "Resources": {}}
    monkeypatch.setattr(ray, "nodes", lambda: [alive | {"Alive": True}, dead | {"Alive": False}])
    told = as_rayfl_error(error("full"), {})  # type: ignore[arg-type]
    assert isinstance(told, ResourceError)
    assert "Ray's object store (0.0977 GiB on 10.0.0.7) is full" in str(told)
    assert ("and so is the disk" in str(told)) == also


def test_an_actor_that_cannot_start_names_the_error_of_the_users_code_before_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.7")

    def make() -> None:
        raise KeyError("no such column")

    with pytest.raises(ResourceError) as caught:
        Started("worker 0", make).get()
    first, *rest = str(caught.value).splitlines()
    assert first == "worker 0 could not start on node 10.0.0.7: KeyError: 'no such column'"
    assert rest[0] == "Traceback (most recent call last):"
    assert "in make" in rest[1], "rayfl's own frames are left out"

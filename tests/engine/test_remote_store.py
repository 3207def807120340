"""States at a URI, as another process writes them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rayfl.engine.state.state_store import DamagedStateError, RemoteStore, Stored
from rayfl.errors import ResourceError
from rayfl.remote_folder import RemoteFolder
from tests.object_store import CREDENTIALS, DENIED, ObjectStore, object_store

WRITES = """
import pickle, sys
import numpy as np
store = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(store.write({"a": np.arange(6.0).reshape(2, 3), "b": np.zeros(0)})))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectStore]:
    with object_store(tmp_path) as server:
        yield server


@pytest.fixture
def store(server: ObjectStore) -> RemoteStore:
    return RemoteStore(RemoteFolder(server.uri("states")))


def test_states_written_by_another_process_are_read_bit_by_bit(store: RemoteStore) -> None:
    """As hosts do, which get the store without credentials, and look for them themselves."""
    sent = pickle.dumps(store)
    assert all(secret.encode() not in sent for secret in CREDENTIALS.values())
    done = subprocess.run([sys.executable, "-c", WRITES], input=sent, capture_output=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr.decode()
    stored: Stored = pickle.loads(done.stdout)  # noqa: S301 - our own bytes
    read = store.read(stored)
    assert np.array_equal(read["a"], np.arange(6.0).reshape(2, 3))
    assert read["b"].shape == (0,)
    read["a"][0, 0] = 7.0  # they are the reader's own
    assert store.held([stored]) == {stored.place}
    assert list(store.places()) == [stored.place]


def test_half_an_upload_never_passes_for_a_state(store: RemoteStore, server: ObjectStore) -> None:
    stored = store.write({"a": np.arange(1000)})
    path = server.folder / "states" / stored.place
    path.write_bytes(path.read_bytes()[:4000])
    with pytest.raises(DamagedStateError, match="is damaged: its digest differs from that of the state"):
        store.read(stored)


def test_a_state_that_is_gone_is_damage_and_a_server_that_refuses_is_not(
    store: RemoteStore, server: ObjectStore
) -> None:
    """The checkpoint before would be read no better."""
    stored = store.write({"a": np.arange(3)})
    store.remove([stored.place, "00/never-there.safetensors"])
    assert not store.held([stored])
    with pytest.raises(DamagedStateError, match=r"is missing; was the snapshot moved without it\?"):
        store.read(stored)
    server.refuses[""] = DENIED
    with pytest.raises(ResourceError, match=r"cannot write .*ACCESS_DENIED"):
        store.write({"a": np.arange(4)})

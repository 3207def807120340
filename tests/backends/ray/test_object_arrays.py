"""Arrays of samples as objects: one copy on a node, whichever stores and processes read it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import ray

from rayfl.backends.ray.object_arrays import ObjectArray, ObjectArrays
from rayfl.data.dataset import Samples

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_arrays_are_put_once_and_pickled_as_references() -> None:
    array, small = np.arange(2**18, dtype=np.float64).reshape(-1, 4), np.arange(10)
    moved = ObjectArrays().move(array)
    assert isinstance(moved, ObjectArray)
    assert not moved.flags.writeable
    assert np.array_equal(moved, array)
    assert ObjectArrays().move(moved) is moved, "a later run puts it again"
    assert ObjectArrays().move(small) is small
    assert len(pickle.dumps(moved[:2])) < 1000
    sent = ray.put([moved, moved])
    received, again = ray.get(sent)
    assert type(received) is np.ndarray
    assert received.ctypes.data == again.ctypes.data == moved.ctypes.data


def test_selections_of_one_array_move_with_it() -> None:
    array = np.arange(2**18, dtype=np.float64).reshape(-1, 4)
    train, test = (Samples(array, np.arange(len(array))).select(np.arange(start, 1000)) for start in (0, 500))
    arrays, later = ObjectArrays(), test.select(np.array([3, 1]))
    for samples in (train, test):
        samples.x.shared.array = arrays.move(samples.x.array)
    assert train.x.array is test.x.array is later.x.array
    assert isinstance(later.x.array, ObjectArray)
    assert np.array_equal(later.x[:], array[[503, 501]])

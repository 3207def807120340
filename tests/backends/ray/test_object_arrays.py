"""Arrays of samples as objects: one copy on a node, whichever stores and processes read it."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import ray
import torch
from torch import nn

from rayfl.backends.ray.actors import _sent
from rayfl.backends.ray.object_arrays import ObjectArray, ObjectArrays
from rayfl.data.dataset import Samples
from tests.engine.scenes import TINY, prepared

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


class Frozen(nn.Module):
    """Two mebibytes of constants."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(4, 2**17, bias=False).requires_grad_(False), nn.Linear(4, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(x)
        return logits


def test_constants_are_put_once_and_mapped_by_the_driver_too() -> None:
    run = prepared(**TINY | {"model": f"{__name__}:Frozen"}, phases=[{"name": "p", "rounds": 1, "cohort": 2}])
    initial = run.workloads[0].initial
    before, digest = initial.constants.copy(), run.constants
    _, _, (whole,) = _sent(run)
    assert isinstance(initial.constants, ObjectArray)
    assert np.array_equal(initial.constants, before)
    received = ray.get(whole).workloads[0].initial.constants
    assert received.ctypes.data == initial.constants.ctypes.data
    assert not received.flags.writeable
    assert replace(run).constants == digest


def test_selections_of_one_array_move_with_it() -> None:
    array = np.arange(2**18, dtype=np.float64).reshape(-1, 4)
    train, test = (Samples(array, np.arange(len(array))).select(np.arange(start, 1000)) for start in (0, 500))
    arrays, later = ObjectArrays(), test.select(np.array([3, 1]))
    for samples in (train, test):
        samples.x.shared.array = arrays.move(samples.x.array)
    assert train.x.array is test.x.array is later.x.array
    assert isinstance(later.x.array, ObjectArray)
    assert np.array_equal(later.x[:], array[[503, 501]])

"""How often batches are copied to a device, and that they are made there: on PyTorch's meta device.

A meta tensor has a shape and no values, and refuses operations with tensors of the CPU as CUDA does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rayfl.config.data import Normalization
from rayfl.config.section import Named
from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Provenance, Samples, Shards
from rayfl.data.store import ShardStore

DEVICE = torch.device("meta")
X = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), np.uint8)
Y = np.random.default_rng(1).integers(0, 10, 60)
AUGMENT = ("flip", "crop", "rotate", "moon_cifar10", "moon_cifar100", "fedexp_cifar", "fps_images")
ON_PIXELS = ("feddecorr_cifar_autoaugment",)


class CopiesToDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that copy a tensor from the CPU to the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        on_cpu = any(isinstance(a, torch.Tensor) and a.device.type == "cpu" and a.dim() for a in args)
        self.count += on_cpu and isinstance(result, torch.Tensor) and result.device == DEVICE
        return result


def source(augment: tuple[str, ...], cache_bytes: int = 0) -> BatchSource:
    samples = Samples(X, Y)
    normalize = Normalization.model_validate("moon_cifar100")
    shards = Shards.by_owner(np.arange(60) % 2, 2)
    chosen = tuple(Named(name=name) for name in augment)
    store = ShardStore("x", samples, samples, 10, shards, None, normalize, chosen, Provenance("arrays", "test"))
    return BatchSource(store, DEVICE, cache_bytes)


def copies_of_a_pass(source: BatchSource) -> int:
    with CopiesToDevice() as copies:
        for x, y in source.training_batches(source.shard(0), 4, np.random.default_rng(0)):
            assert x.device == y.device == DEVICE
    return int(copies.count)


@pytest.mark.parametrize("augment", [(), AUGMENT[:1], ON_PIXELS + AUGMENT])
def test_a_pass_copies_inputs_labels_and_draws_once_each_however_many_batches_it_has(augment: tuple[str, ...]) -> None:
    assert copies_of_a_pass(source(augment)) == 2 + bool(augment)


@pytest.mark.parametrize("augment", [(), AUGMENT])
def test_samples_that_are_on_the_device_are_not_copied_again(augment: tuple[str, ...]) -> None:
    resident = source(augment, 2**20)
    copies_of_a_pass(resident)
    assert copies_of_a_pass(resident) == 1 + bool(augment)  # which samples, and the draws


def test_test_samples_stay_on_the_device_if_the_training_samples_leave_room() -> None:
    size = X[0].size + Y.itemsize
    for budget, expected in ((2 * 60 * size, 1), (60 * size, 2)):
        resident = source((), budget)
        resident.test_batch(slice(0, 60))
        with CopiesToDevice() as copies:
            resident.test_batch(slice(0, 30))
        assert copies.count == expected

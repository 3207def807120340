"""Fetched samples are the same whether they are kept on the device, copied again, or both."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayfl.data.dataset import Samples
from rayfl.data.inputs import TextWindows
from rayfl.data.tensors import SampleReader

CPU = torch.device("cpu")
IMAGES = Samples(
    np.random.default_rng(0).integers(0, 256, (40, 3, 3, 1), np.uint8), np.arange(40, dtype=np.int16)[::-1].copy()
)
TEXT = np.random.default_rng(1).integers(0, 80, 100, np.uint8)
WINDOWS = Samples(TextWindows(TEXT, np.arange(40) * 2, 5), np.arange(40))


@pytest.mark.parametrize("samples", [IMAGES, WINDOWS])
@pytest.mark.parametrize("kept", [0, 1, 17, 40, 1000])
def test_a_reader_fetches_rows_in_order_for_any_budget(samples: Samples, kept: int) -> None:
    size = int(np.prod(samples.x.shape[1:])) + samples.y.itemsize
    reader = SampleReader(samples, CPU, kept * size + 1)
    assert reader.reserved_bytes == min(kept, 40) * size
    rng = np.random.default_rng(2)
    for _ in range(30):
        rows = rng.choice(40, int(rng.integers(1, 12)))
        x, y = reader.fetch(rows)
        np.testing.assert_array_equal(x.numpy(), np.asarray(samples.x)[rows])
        assert y.tolist() == samples.y[rows].tolist()
        assert y.dtype == torch.int64
    x, y = reader.fetch(slice(3, 9))
    np.testing.assert_array_equal(x.numpy(), np.asarray(samples.x)[3:9])


def test_modifying_fetched_samples_does_not_change_kept_ones() -> None:
    reader = SampleReader(IMAGES, CPU, 2**20)
    for _ in range(2):
        x, _ = reader.fetch(np.array([4, 5]))
        np.testing.assert_array_equal(x.numpy(), np.asarray(IMAGES.x)[[4, 5]])
        x.zero_()

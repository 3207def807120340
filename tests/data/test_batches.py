"""Batches equal the plain formula, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayfl.config.data import Normalization
from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Provenance, Samples, Shards
from rayfl.data.store import ShardStore

X = np.random.default_rng(0).integers(0, 256, (50, 6, 7, 3), np.uint8)
Y = np.random.default_rng(1).integers(0, 10, 50)
OWNER = np.random.default_rng(2).integers(0, 3, 50)


def _source(normalize: Normalization | None, y: np.ndarray = Y) -> BatchSource:
    samples = Samples(X, y)
    shards = Shards.by_owner(OWNER, 3)
    provenance = Provenance("arrays", "test")
    store = ShardStore("images", samples, samples, 10, shards, None, normalize, (), provenance)
    return BatchSource(store, torch.device("cpu"))


@pytest.mark.parametrize("normalize", [None, Normalization(mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26))])
def test_images_are_scaled_and_normalised_per_channel_bit_for_bit(normalize: Normalization | None) -> None:
    source = _source(normalize)
    rows = np.flatnonzero(OWNER == 1)
    order = np.random.default_rng(3).permutation(len(rows))
    assert source.shard(1).tolist() == rows.tolist()
    batches = list(source.training_batches(source.shard(1)[order], 4, np.random.default_rng(0)))
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in batches)
    expected = torch.from_numpy(X[rows[order]]).float() / 255
    if normalize is not None:
        expected = (expected - torch.tensor(normalize.mean)) / torch.tensor(normalize.std)
    assert torch.equal(torch.cat([x for x, _ in batches]), expected.permute(0, 3, 1, 2))
    assert torch.cat([y for _, y in batches]).tolist() == Y[rows[order]].tolist()
    plain = list(source.plain_batches(rows, 5))
    assert [len(x) for x, _ in plain] == [len(part) for part in np.split(rows, range(5, len(rows), 5))]
    assert torch.equal(torch.cat([x for x, _ in plain])[order], torch.cat([x for x, _ in batches]))


def test_labels_of_any_integers_come_out_as_int64() -> None:
    _, y = _source(None, Y.astype(np.uint8)).test_batch(slice(0, 5))
    assert y.dtype == torch.int64
    assert y.tolist() == Y[:5].tolist()

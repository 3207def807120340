"""From the shard store to batches on a device: vectorised tensor operations, no Python code per sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from rayfl.data.augmentation.pipeline import Pipeline
from rayfl.data.device_copy import to_device
from rayfl.data.sample_reader import SampleReader

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore


class BatchSource:
    """Batches of the store's samples on one device.

    Inputs come out as the model wants them: images as float32 [n, channels, height, width] (channels-last in memory),
    scaled to [0, 1] and normalised; other floating point inputs as float32, integers as int64. Labels are int64 [n].

    Args:
        store: The data.
        device: Where batches are made.
        cache_bytes: How much of a GPU's memory may hold samples, training samples first (see `SampleReader`). The CPU
            has the samples already and needs no cache.

    Raises:
        ScenarioError: An augmentation that cannot be built.
    """

    def __init__(self, store: ShardStore, device: torch.device, cache_bytes: int = 0) -> None:
        self._store, self._device = store, device
        self._images = store.train.x.dtype == np.uint8 and store.train.x.ndim == 4
        self._pipeline = Pipeline(store.augment)
        budget = 0 if device.type == "cpu" else cache_bytes
        self._train = SampleReader(store.train, device, budget)
        self._test = SampleReader(store.test, device, budget - self._train.reserved_bytes)
        self._mean_std: tuple[torch.Tensor, torch.Tensor] | None = None
        if store.normalize:
            # Repeated for a row of pixels: PyTorch is five times slower where it repeats three values itself.
            width = store.input_shape[1]
            self._mean_std = (
                torch.tensor(store.normalize.mean, device=device).repeat(width),
                torch.tensor(store.normalize.std, device=device).repeat(width),
            )

    def shard(self, client: int) -> np.ndarray:
        """[num_samples] integers: the rows of the training samples that belong to a client; not to be written to."""
        return self._store.train_shards[client]

    def num_samples(self, client: int) -> int:
        """How many training samples a client has."""
        return len(self.shard(client))

    @property
    def mean_samples(self) -> float:
        """How many training samples a client has on average."""
        return float(self._store.train_shards.offsets[-1]) / self._store.num_clients

    def labels(self, rows: np.ndarray) -> torch.Tensor:
        """The labels of training samples, in the order of `rows`."""
        return self._train.labels(rows)

    def plain_batches(self, rows: np.ndarray, batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Training samples in the given order, not augmented; fetched batch by batch, for passes that do not train.

        Args:
            rows: [n] integers, rows of the training samples, such as `shard(client)`.
            batch_size: Samples of a batch; the last one may have fewer.

        Yields:
            Inputs and labels of one batch.
        """
        for start in range(0, len(rows), batch_size):
            x, y = self._train.fetch(rows[start : start + batch_size])
            yield self._model_layout(self._scaled(x)), y

    def training_batches(
        self, rows: np.ndarray, batch_size: int, rng: np.random.Generator, augment: bool = True
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One pass over training samples in the given order.

        The pass is fetched at once: one gather, one copy to the device, and every batch is a view of it; so are all
        random numbers of its augmentation, unless one of the user's own draws for itself. Rows that will not be
        trained on should therefore not be among `rows`.

        Args:
            rows: [n] integers, rows of the training samples in the order in which they are trained on.
            batch_size: Samples of a batch; the last one may have fewer.
            rng: Where the augmentation draws from, batch after batch.
            augment: Whether to apply the scenario's augmentation.

        Yields:
            Inputs and labels of one batch.
        """
        x, y = self._train.fetch(rows)
        if not (augment and self._pipeline.steps):
            for start in range(0, len(rows), batch_size):
                yield self._model_layout(self._scaled(x[start : start + batch_size])), y[start : start + batch_size]
            return
        height, width, channels = self._store.input_shape
        drawn = self._pipeline.draw(len(rows), batch_size, (height, width, channels), rng)
        draws = None if drawn is None else to_device(drawn, self._device)
        for start in range(0, len(rows), batch_size):
            part = slice(start, start + batch_size)
            of_batch = None if draws is None else draws[:, part]
            batch = self._scaled(self._pipeline.on_pixels(x[part], of_batch, rng))
            yield self._model_layout(self._pipeline.on_values(batch, of_batch, rng)), y[part]

    def test_batch(self, rows: np.ndarray | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Some test samples in the given order, never augmented: inputs and labels."""
        x, y = self._test.fetch(rows)
        return self._model_layout(self._scaled(x)), y

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        if not self._images:
            return x.float() if x.is_floating_point() else x.long()
        x = x.float().div_(255)
        if self._mean_std is not None:
            x.flatten(2).sub_(self._mean_std[0]).div_(self._mean_std[1])
        return x

    def _model_layout(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 3, 1, 2) if self._images else x

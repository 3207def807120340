"""From the shard store to batches on a device: vectorised tensor operations, no per-sample Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from rayfl.data import augmentations
from rayfl.data.dataset import TextWindows
from rayfl.data.store import ShardStore
from rayfl.registry import call_with_options


def to_tensor(array: np.ndarray | TextWindows, rows: np.ndarray | slice, device: torch.device) -> torch.Tensor:
    """A copy of some rows of a (possibly read-only, shared) array, in memory that PyTorch aligned.

    `torch.from_numpy` on a read-only array would make a writable alias of memory that other processes share.
    """
    count = len(rows) if isinstance(rows, np.ndarray) else len(range(*rows.indices(len(array))))
    tensor = torch.empty((count, *array.shape[1:]), dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype)
    if isinstance(rows, np.ndarray) and isinstance(array, np.ndarray):
        np.take(array, rows, axis=0, out=tensor.numpy(), mode="clip")  # other modes go through a second buffer
    else:
        tensor.numpy()[...] = array[rows]
    return tensor.to(device)


class BatchSource:
    """Batches of the store's examples on one device.

    Inputs come out as the model wants them: images as float32 [n, C, H, W] (channels-last in memory), scaled to
    [0, 1] and normalised; other floating point inputs as float32, integers as int64. Labels are int64 [n].
    """

    def __init__(self, store: ShardStore, device: torch.device) -> None:
        self._store, self._device = store, device
        self._images = store.train.x.dtype == np.uint8 and store.train.x.ndim == 4
        self._augment: list[Callable[[torch.Tensor, np.random.Generator], torch.Tensor]] = [
            call_with_options(augmentations.resolve(item.name), item.options, {}, f"data.augment.{index}")
            for index, item in enumerate(store.augment)
        ]
        self._mean_std: tuple[torch.Tensor, torch.Tensor] | None = None
        if store.normalize:
            # Repeated for a row of pixels: PyTorch is five times slower where it repeats three values itself.
            width = store.input_shape[1]
            self._mean_std = (
                torch.tensor(store.normalize.mean, device=device).repeat(width),
                torch.tensor(store.normalize.std, device=device).repeat(width),
            )

    def num_samples(self, client: int) -> int:
        offsets = self._store.train_shards.offsets
        return int(offsets[client + 1] - offsets[client])

    @property
    def mean_samples(self) -> float:
        """How many training examples a client has on average."""
        return float(self._store.train_shards.offsets[-1]) / self._store.num_clients

    def plain_batches(self, client: int, batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All of a client's training examples in the shard's order, not augmented."""
        shard = self._store.train_shards[client]
        for start in range(0, len(shard), batch_size):
            rows = shard[start : start + batch_size]
            x = to_tensor(self._store.train.x, rows, self._device)
            y = to_tensor(self._store.train.y, rows, self._device).long()
            yield self._model_layout(self._scaled(x)), y

    def training_batches(
        self, client: int, order: np.ndarray, batch_size: int, steps: int, rng: np.random.Generator
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The first `steps` batches of one pass over a client's examples in the given order, augmented.

        The pass is fetched at once: one gather, one copy to the device, and every batch is a view of it.
        """
        rows = self._store.train_shards[client][order[: steps * batch_size]]
        x = to_tensor(self._store.train.x, rows, self._device)
        y = to_tensor(self._store.train.y, rows, self._device).long()
        for start in range(0, len(rows), batch_size):
            batch = self._scaled(x[start : start + batch_size])
            for augmentation in self._augment:
                batch = augmentation(batch, rng)
            yield self._model_layout(batch), y[start : start + batch_size]

    def test_batch(self, rows: np.ndarray | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Test examples, as they are: not augmented."""
        x = to_tensor(self._store.test.x, rows, self._device)
        y = to_tensor(self._store.test.y, rows, self._device).long()
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

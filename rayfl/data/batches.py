"""Makes batches on a device from the shard store, with vectorised tensor operations and no Python code per sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rayfl.data.augmentation.pipeline import Pipeline, pipelines
from rayfl.data.checks import not_finite_later
from rayfl.data.dataset import has_label_maps
from rayfl.data.held_out import pool_number
from rayfl.data.inputs import are_images
from rayfl.data.tensors import Input, SampleReader, build_collation, to_device

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore


Batch = tuple[Any, torch.Tensor]
"""Inputs (a tensor, or keyword arguments of the network's `forward`: see `Input`) and labels."""

_BYTES_AT_ONCE = 2**26
"""Bytes of stored samples that a pass fetches at a time, unless a single batch is larger."""

_ROWS_TO_CHECK = 256
"""Samples in a batch that is only looked at."""


class BatchSource:
    """Makes batches of the stored samples on one device.

    Inputs have the form that models expect: images are float32 [n, channels, height, width] (channels-last in memory),
    scaled to [0, 1] and normalised; other floating point inputs are float32, integers int64, and booleans (of inputs
    by name) unchanged. Inputs by name are a dictionary of such tensors, passed to the network as keyword arguments.
    Labels are int64 or float32, [n] or any shape that the data gives them.

    Sets of samples are named "train", "test", "server", or as in `ShardStore.held_out`.

    Args:
        store: The data.
        device: The device of the batches.
        cache_bytes: Amount of GPU memory for samples, training samples first (see `SampleReader`). The CPU already
            has the samples and needs no cache.
        ignored_label: The label that the task ignores. Label maps get it where an augmentation uncovers pixels
            outside the image.

    Attributes:
        moves_labels: Whether labels are maps, which augmentations transform together with the images.
        made: Number of batches made so far, by which a slow worker can be told from one that hangs.

    Raises:
        ScenarioError: An augmentation or collation cannot be built.
    """

    def __init__(
        self, store: ShardStore, device: torch.device, cache_bytes: int = 0, ignored_label: int | None = None
    ) -> None:
        self._store, self._device, self._ignored_label, self.made = store, device, ignored_label, 0
        self._images = are_images(store.train.x) and not store.collate
        self._pipelines = pipelines(store.augmentations)
        self._collate = build_collation(store.collate) if store.collate else None
        self._budget = 0 if device.type == "cpu" else cache_bytes
        self._readers: dict[str, SampleReader] = {}
        for name in ("train", "test"):
            self._reader(name)
        self.moves_labels = self._images and has_label_maps(store.train)
        self._mean_std: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def shard(self, client: int) -> np.ndarray:
        """[num_samples] integers: the rows of `set_of(client)` that belong to a client; do not write to them.

        Pools of samples have numbers too (`rayfl.data.held_out`).
        """
        store = self._store
        if client < store.num_clients:
            return store.train_shards[client]
        if client == pool_number("nobody", store.num_clients):
            return np.arange(0)
        if self.set_of(client) == "train":
            return np.sort(store.train_shards.rows)
        return np.arange(len(store.samples("server")))

    def not_finite(self, name: str, rows: np.ndarray, augment: bool = True) -> str:
        """Finds NaN and infinity in inputs that could not be checked before the run, once training or scoring failed.

        Args:
            name: Name of the set of samples.
            rows: Its rows to look at.
            augment: Whether to look at them augmented as well.

        Returns:
            What is not finite and the remedy, or "" if everything is finite.
        """
        if problem := not_finite_later(self._store.samples(name).x, rows):
            return (
                f"the data is not finite: {self._store.name}: {name}: {problem}; leave such samples out, or fill them"
            )
        if not (augment and self.varies) and not self._collate:
            return ""
        rngs = [np.random.default_rng(0) for _ in self._pipelines]
        for views, _ in self.training_views(rows, _ROWS_TO_CHECK, rngs, augment, name):
            tensors = [one for x in views for one in (x.values() if isinstance(x, dict) else [x])]
            if any(tensor.is_floating_point() and not tensor.isfinite().all() for tensor in tensors):
                key = "data.collate" if self._collate else "data.augment"
                return f"{key}: makes inputs of the samples of {name} that are not finite (NaN or infinity)"
        return ""

    def set_of(self, client: int) -> str:
        """The set of samples that a client or a pool trains on."""
        return "server" if client == pool_number("server", self._store.num_clients) else "train"

    def num_samples(self, client: int) -> int:
        """Number of training samples of a client."""
        return len(self.shard(client))

    @property
    def varies(self) -> bool:
        """Whether training batches of the same samples differ, because of augmentation or rendering."""
        return any(pipeline.steps for pipeline in self._pipelines) or self._reader("train").renders

    @property
    def reserved_bytes(self) -> int:
        """Bytes on the device for samples that stay there."""
        return sum(reader.reserved_bytes for reader in self._readers.values())

    @property
    def mean_samples(self) -> float:
        """Average number of training samples per client."""
        return float(self._store.train_shards.offsets[-1]) / self._store.num_clients

    def labels(self, rows: np.ndarray, name: str = "train") -> torch.Tensor:
        """The labels of some samples of a set, in the order of `rows`."""
        return self._reader(name).labels(rows)

    def batch(self, name: str, rows: np.ndarray | slice) -> Batch:
        """Some samples of a set, in the given order, never augmented."""
        x, y = self._reader(name).fetch(rows)
        self.made += 1
        return self._finished(x), y

    def test_batch(self, rows: np.ndarray | slice) -> Batch:
        """Inputs and labels of some test samples in the given order, never augmented."""
        return self.batch("test", rows)

    def plain_batches(self, rows: np.ndarray, batch_size: int, name: str = "train") -> Iterator[Batch]:
        """Batches in the given order, without augmentation, for passes that do not train.

        Args:
            rows: [n] integers, rows of the set of samples, such as `shard(client)`.
            batch_size: Samples per batch; the last batch may be smaller.
            name: Name of the set.

        Yields:
            Inputs and labels of one batch.
        """
        for start in range(0, len(rows), batch_size):
            yield self.batch(name, rows[start : start + batch_size])

    def training_batches(
        self,
        rows: np.ndarray,
        batch_size: int,
        rng: np.random.Generator | None,
        augment: bool = True,
        name: str = "train",
        view: int = 0,
    ) -> Iterator[Batch]:
        """One pass over samples in the given order, for a single view.

        Args:
            rows: [n] integers, rows of the set of samples in training order.
            batch_size: Samples per batch; the last batch may be smaller.
            rng: Random numbers for rendering and augmentation; may be None if batches do not vary.
            augment: Whether to augment, and to render a new image for every batch.
            name: Name of the set: "train", or "server" for training on the server.
            view: The view whose augmentation applies, if views differ in it.

        Yields:
            Inputs and labels of one batch.
        """
        for (x,), y in self.training_views(rows, batch_size, [rng], augment, name, view):
            yield x, y

    def training_views(
        self,
        rows: np.ndarray,
        batch_size: int,
        rngs: Sequence[np.random.Generator | None],
        augment: bool = True,
        name: str = "train",
        first: int = 0,
    ) -> Iterator[tuple[list[Input], torch.Tensor]]:
        """One pass over samples in the given order, for several views.

        Several batches are fetched together, with one gather and one copy to the device; each batch is a slice of that
        copy. The random numbers of their augmentation are also drawn together, unless an augmentation draws its own.
        Inputs that are rendered or collated are made one batch at a time.

        Args:
            rows: See `training_batches`.
            batch_size: See `training_batches`.
            rngs: The random stream of each view.
            augment: See `training_batches`.
            name: See `training_batches`.
            first: Number of the first view; the others follow.

        Yields:
            The inputs of every view of one batch, and its labels; label maps are those of the first view.
        """
        if self._collate:
            passes = [self.plain_batches(rows, batch_size, name) for _ in rngs]
            for made in zip(*passes, strict=True):
                yield [x for x, _ in made], made[0][1]
            return
        reader = self._reader(name)
        numbers = range(first, first + len(rngs))
        steps = [self._pipelines[number] if len(self._pipelines) > 1 else self._pipelines[0] for number in numbers]
        for piece in self._pieces(reader, rows, batch_size, anew=augment and reader.renders):
            inputs, y = self._inputs_of_views(reader, piece, rngs, augment)
            views = [
                self._batches(x, y, batch_size, pipeline if augment and pipeline.steps else None, rng)
                for x, pipeline, rng in zip(inputs, steps, rngs, strict=True)
            ]
            for made in zip(*views, strict=True):
                yield [x for x, _ in made], made[0][1]

    @staticmethod
    def _pieces(reader: SampleReader, rows: np.ndarray, batch_size: int, anew: bool) -> Iterator[np.ndarray]:
        """The rows that are fetched together: several whole batches, or one if images are rendered for every batch."""
        batches = 1 if anew else max(1, _BYTES_AT_ONCE // max(1, reader.row_bytes * batch_size))
        for start in range(0, len(rows), batches * batch_size):
            yield rows[start : start + batches * batch_size]

    @staticmethod
    def _inputs_of_views(
        reader: SampleReader, rows: np.ndarray, rngs: Sequence[np.random.Generator | None], augment: bool
    ) -> tuple[list[Any], torch.Tensor]:
        """Inputs for each view, either copies of the same inputs or separate renderings, and the labels."""
        if augment and reader.renders:
            drawn_from = rngs[:1] if reader.shares_views else rngs
            views, y = reader.render(rows, [_given(rng) for rng in drawn_from]), reader.labels(rows)
        else:
            x, y = reader.fetch(rows)
            views = [x]
        return [*views, *(_copied(views[0]) for _ in rngs[len(views) :])], y

    def _batches(
        self, x: Any, y: torch.Tensor, batch_size: int, pipeline: Pipeline | None, rng: np.random.Generator | None
    ) -> Iterator[Batch]:
        """The batches of one view of some samples, augmented if there is a pipeline."""
        parts = [slice(start, start + batch_size) for start in range(0, len(y), batch_size)]
        if isinstance(x, dict) or pipeline is None:
            for part in parts:
                self.made += 1
                inputs = {key: tensor[part] for key, tensor in x.items()} if isinstance(x, dict) else x[part]
                yield self._finished(inputs), y[part]
            return
        assert rng is not None
        _, height, width, channels = x.shape
        drawn = pipeline.draw(len(y), batch_size, (height, width, channels), rng)
        draws = None if drawn is None else to_device(drawn, self._device)
        for part in parts:
            self.made += 1
            of_batch = None if draws is None else draws[:, part]
            batch = self._scaled(pipeline.on_pixels(x[part], of_batch, rng))
            labels = y[part]
            if self.moves_labels and of_batch is not None:
                labels = pipeline.on_labels(labels, of_batch, self._ignored_label)
            yield self._model_layout(pipeline.on_values(batch, of_batch, rng)), labels

    def _reader(self, name: str) -> SampleReader:
        if name not in self._readers:
            reader = SampleReader(self._store.samples(name), self._device, self._budget, self._collate)
            self._budget -= reader.reserved_bytes
            self._readers[name] = reader
        return self._readers[name]

    def _finished(self, x: Input) -> Input:
        if isinstance(x, dict):
            return {name: _as_numbers(tensor) for name, tensor in x.items()}
        return self._model_layout(self._scaled(x))

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        if not self._images:
            return _as_numbers(x)
        x = x.float().div_(255)
        if self._store.normalize:
            mean, std = self._mean_and_std(x.shape[2])
            x.flatten(2).sub_(mean).div_(std)
        return x

    def _mean_and_std(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Repeated for a row of pixels: PyTorch is five times slower when it broadcasts three values itself."""
        assert self._store.normalize
        if width not in self._mean_std:
            mean, std = self._store.normalize.mean, self._store.normalize.std
            self._mean_std[width] = (
                torch.tensor(mean, device=self._device).repeat(width),
                torch.tensor(std, device=self._device).repeat(width),
            )
        return self._mean_std[width]

    def _model_layout(self, x: torch.Tensor) -> torch.Tensor:
        if not self._images:
            return x
        x = x.permute(0, 3, 1, 2)
        return x if self._device.type == "cpu" else x.contiguous()  # as weights are: convolutions follow either


def _as_numbers(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.bool:
        return x
    return x.float() if x.is_floating_point() else x.long()


def _copied(x: Any) -> Any:
    return {name: tensor.clone() for name, tensor in x.items()} if isinstance(x, dict) else x.clone()


def _given(rng: np.random.Generator | None) -> np.random.Generator:
    assert rng is not None
    return rng

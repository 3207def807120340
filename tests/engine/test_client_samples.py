"""What executors read of a client's samples agrees with the batches that they train and query on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.config.data import Data
from rayfl.data.batches import BatchSource
from rayfl.data.store import build_store
from rayfl.engine.executors.executor import ClientSamples
from rayfl.streams import stream
from rayfl.tasks.supervised import Segmentation

CPU = torch.device("cpu")


@pytest.mark.parametrize("augment", [False, True])
def test_a_mean_over_label_maps_counts_the_pixels_that_are_labelled_in_its_batches(
    augment: bool, tmp_path: Path
) -> None:
    crop = {"name": "crop", "padding": 4}
    config = Data.model_validate(
        {"name": "tests.data.augmentation.test_label_maps:maps", "clients": 2, "partition": "iid", "augment": [crop]}
    )
    task = Segmentation(ignore=0)
    source = BatchSource(build_store(config, 0, tmp_path, tmp_path), CPU, ignored_label=0)
    samples = ClientSamples(source, CPU, task)
    client: Any = SimpleNamespace(
        id=0, streams=SimpleNamespace(numpy=lambda purpose, number: stream(0, purpose, number))
    )
    view: Any = SimpleNamespace(places=np.arange(len(source.shard(0))), augment=augment)
    read = [y for _, y in samples.all_batches(client, view, 3)]
    labelled = sum(int((y != 0).sum()) for y in read)
    assert int(samples.divisor(client, view, 3)) == labelled
    stored = int((samples.labels(client, view) != 0).sum())
    assert (labelled < stored) == augment

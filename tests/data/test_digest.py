"""The digest of a data set: the same for the same data in any folder, different after any change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rayfl.data import scenario_data as module
from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.inputs import Inputs, TextWindows
from rayfl.data.scenario_data import data_digest


def arrays(change: float = 0.0, label: int = 0, owner: str = "ann") -> Dataset:
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    x[5, 3] += change
    y = np.array([label, 1, 2, 0, 1, 2])
    owners = np.array(["ann"] * 3 + ["bob"] * 2 + [owner])
    return dataset_of_arrays("mine", {"train": (x, y, owners), "test": (x, y)})


def test_equal_arrays_have_one_digest_and_a_changed_input_label_or_owner_another() -> None:
    found = [
        data_digest(data) for data in (arrays(), arrays(), arrays(change=1e-3), arrays(label=1), arrays(owner="bob"))
    ]
    assert found[0] == found[1]
    assert len(set(found)) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([np.zeros(2), np.zeros(3)], [np.zeros(3), np.zeros(2)]),
        ({"a": np.zeros(2), "b": np.ones(2)}, {"a": np.ones(2), "b": np.zeros(2)}),
        (np.zeros((2, 3)), np.zeros((2, 3), np.float32)),
        (np.zeros((2, 4)), np.zeros((2, 2, 2))),
        (TextWindows(np.arange(9, dtype=np.uint8), np.array([0, 1]), 3),) * 2,
    ],
    ids=["ragged", "by name", "dtype", "shape", "text"],
)
def test_inputs_of_every_kind_count_with_their_shape_and_dtype(one: Inputs, other: Inputs) -> None:
    y = np.array([0, 1])
    before, after = (dataset_of_arrays("mine", (x, y, x, y)) for x in (one, other))
    if isinstance(other, TextWindows):
        windows = Samples(replace(other, starts=np.array([0, 2])), y)
        after = replace(after, train=windows, test=windows)
    assert data_digest(before) != data_digest(after)


def test_rows_are_read_in_parts_and_need_not_be_contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data_digest(arrays())
    monkeypatch.setattr(module, "_BYTES_AT_ONCE", 32)
    data = arrays()
    turned = Samples(np.asfortranarray(data.train.x), data.train.y)
    assert data_digest(data) == data_digest(replace(data, train=turned)) == whole


def test_the_digest_of_files_depends_only_on_their_digests() -> None:
    here, there, changed = (
        replace(data, provenance=Provenance("files", path, ((path, sha256),)))
        for data, path, sha256 in (
            (arrays(), "/a/x.npz", "1" * 64),
            (arrays(change=1), "/b/x.npz", "1" * 64),
            (arrays(), "/a/x.npz", "2" * 64),
        )
    )
    assert data_digest(here) == data_digest(there) != data_digest(changed)

"""FEMNIST: real files if they are found, otherwise a stand-in that is named, never a silent one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from rayfl.config.registry import call_with_options
from rayfl.data.dataset import Dataset
from rayfl.data.generated import handwriting
from rayfl.data.prepare import prepare_femnist
from rayfl.data.sources import femnist
from rayfl.errors import DataError
from tests.data.leaf_files import USERS, write_leaf


def _load(tmp_path: Path, source: Literal["auto", "files", "generated"], clients: int | None = 2) -> Dataset:
    return femnist.load(source, tmp_path / "data", tmp_path / "cache", seed=0, clients=clients)


def _assert_same(a: Dataset, b: Dataset) -> None:
    for split in ("train", "test"):
        np.testing.assert_array_equal(getattr(a, split).x, getattr(b, split).x)
        np.testing.assert_array_equal(getattr(a, split).y, getattr(b, split).y)
    assert a.natural is not None
    assert b.natural is not None
    assert a.natural.names == b.natural.names
    for split in ("train", "test"):
        np.testing.assert_array_equal(getattr(a.natural, split).rows, getattr(b.natural, split).rows)
        np.testing.assert_array_equal(getattr(a.natural, split).offsets, getattr(b.natural, split).offsets)


def test_parquet_prepared_from_leaf_json_loads_the_same_data(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "femnist"
    write_leaf(folder)
    from_json = _load(tmp_path, "files")
    prepare_femnist(folder, folder / "femnist.parquet")
    from_parquet = _load(tmp_path, "files")
    _assert_same(from_json, from_parquet)
    assert len(from_json.provenance.files) == 3
    content = (folder / "femnist.parquet").read_bytes()
    expected = ((str(folder / "femnist.parquet"), hashlib.sha256(content).hexdigest()),)
    assert from_parquet.provenance.files == expected


@pytest.mark.parametrize("source", ["auto", "files"])
def test_files_are_read_whole_for_any_number_of_clients(tmp_path: Path, source: Literal["auto", "files"]) -> None:
    write_leaf(tmp_path / "data" / "femnist" / "data")
    dataset = _load(tmp_path, source, clients=1)
    assert dataset.natural is not None
    assert dataset.natural.names == tuple(sorted(USERS))
    assert dataset.train.x.shape == (12, 28, 28, 1)
    assert dataset.train.x.dtype == np.uint8
    assert dataset.train.y.dtype == np.int64
    assert dataset.num_classes == 62
    assert dataset.provenance.source == "files"
    assert dataset.provenance.description == "FEMNIST, 3 writers; LEAF's polarity: white background (255), dark ink"


def test_auto_without_files_generates_and_says_so(tmp_path: Path) -> None:
    dataset = _load(tmp_path, "auto")
    _assert_same(dataset, handwriting.load(tmp_path / "cache", 0, 2))
    assert dataset.name == "femnist"
    assert dataset.provenance.source == "generated"
    description = dataset.provenance.description
    assert description.startswith("Stand-in for FEMNIST (generated handwriting), not real data: no files in ")
    assert f"`python -m rayfl.data.download femnist --data-dir {tmp_path / 'data'}`" in description
    assert "white background (255)" in description


def test_generated_ignores_files(tmp_path: Path) -> None:
    write_leaf(tmp_path / "data" / "femnist")
    dataset = _load(tmp_path, "generated")
    assert dataset.provenance.source == "generated"
    assert "data.source is 'generated'" in dataset.provenance.description


def test_the_stand_in_has_190_writers_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, asked = handwriting.cached(tmp_path, 0, 2), list[Any]()

    def cached(*given: Any) -> Any:
        asked.append(given)
        return few

    monkeypatch.setattr(handwriting, "cached", cached)
    femnist.load("auto", tmp_path, tmp_path, seed=0, clients=None)
    assert asked == [(tmp_path, 0, 190, 62)]


def test_files_never_falls_back(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        _load(tmp_path, "files")
    message = str(raised.value)
    folder = tmp_path / "data" / "femnist"
    assert message.startswith(f"FEMNIST not found: looked in {folder} for femnist.parquet, train/*.json")
    assert f"`python -m rayfl.data.download femnist --data-dir {tmp_path / 'data'}`" in message
    assert f"`python -m rayfl.data.prepare femnist LEAF_FOLDER {folder / 'femnist.parquet'}`" in message
    assert "\n" not in message


def test_auto_does_not_hide_a_damaged_file(tmp_path: Path) -> None:
    file = tmp_path / "data" / "femnist" / "femnist.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=f"{file}: cannot be read as Parquet, truncated or corrupt?"):
        _load(tmp_path, "auto")


def test_parquet_that_is_a_folder_is_named(tmp_path: Path) -> None:
    file = tmp_path / "data" / "femnist" / "femnist.parquet"
    file.mkdir(parents=True)
    with pytest.raises(DataError, match=f"{file}: cannot be read"):
        _load(tmp_path, "auto")


def test_real_femnist_has_the_writers_and_images_of_its_readme(data_dir: Path, tmp_path: Path) -> None:
    given = {"source": "files", "data_dir": data_dir, "cache_dir": tmp_path, "seed": 0, "clients": 190}
    dataset = call_with_options(femnist.load, {}, given, "data")
    assert (len(dataset.train), len(dataset.test)) == (54098, 6164)
    assert len(dataset.natural.names) == 385
    assert list(dataset.natural.names) == sorted(dataset.natural.names)
    sizes = dataset.natural.train.sizes + dataset.natural.test.sizes
    assert (sizes.min(), np.median(sizes), sizes.max()) == (20, 167, 355)
    labels = np.bincount(np.concatenate([dataset.train.y, dataset.test.y]), minlength=62)
    assert (labels[:10].sum(), labels[10:36].sum(), labels[36:].sum(), labels.min()) == (42795, 8834, 8633, 209)
    assert np.median(dataset.train.x) == 255
    assert not list(tmp_path.iterdir())


def test_generated_handwriting_is_about_as_dark_as_real_femnist(data_dir: Path, generated: Path) -> None:
    real = femnist.load("files", data_dir, generated, 0)
    written = handwriting.cached(generated, 0, 190)
    ratio = (written.images < 128).mean() / (np.asarray(real.train.x) < 128).mean()
    assert 0.5 < ratio < 2

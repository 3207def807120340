"""Images that stay on disk give the same results as images in memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rayfl.config.data import Data
from rayfl.config.scenario import Scenario
from rayfl.data.formats.image_files import ImageRows
from rayfl.data.indexed_rows import IndexedRows
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import DataError
from rayfl.runs.preparation import prepare
from tests.engine.scenes import run_on_hosts

MLP: dict[str, Any] = {"name": "mlp", "hidden": [6]}


def save(file: Path, pixels: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


def write_classes(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for number in range(12):
            save(folder / name / f"{number}.png", rng.integers(0, 256, (9, 11, 3), np.uint8))


def write_inaturalist(folder: Path) -> None:
    rng = np.random.default_rng(1)
    rows = []
    for number in range(12):
        save(folder / "images" / f"{number}.jpg", rng.integers(0, 256, (40, 50, 3), np.uint8))
        rows.append(f"{number},{number % 4}\n")
    users = "".join(f"{number % 3},{row}" for number, row in enumerate(rows[:8]))
    (folder / "federated_train_geo_3k.csv").write_text("user_id,image_id,class\n" + users)
    (folder / "test.csv").write_text("image_id,class\n" + "".join(rows[8:]))


def write_cityscapes(folder: Path) -> None:
    rng = np.random.default_rng(2)
    for split, city in (("train", "ulm"), ("train", "aachen"), ("val", "munster")):
        for number in range(2):
            name = f"{city}_{number:06}_000019"
            save(
                folder / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png",
                rng.integers(0, 256, (6, 9, 3), np.uint8),
            )
            save(
                folder / "gtFine" / split / city / f"{name}_gtFine_labelIds.png", rng.integers(0, 34, (6, 9), np.uint8)
            )


SOURCES: dict[str, tuple[Any, dict[str, Any]]] = {
    "pictures": (write_classes, {"name": "image_folder", "clients": 3, "options": {"size": 8}}),
    "inaturalist": (write_inaturalist, {"name": "inaturalist", "options": {"size": 32}}),
    "cityscapes": (write_cityscapes, {"name": "cityscapes", "options": {"shrink": 2}}),
}


def data(source: str, root: Path, keep: str, **more: Any) -> dict[str, Any]:
    """The data section of a source, whose files are written at the first call."""
    write, section = SOURCES[source]
    if not (root / source).exists():
        write(root / source)
    path = {"path": str(root / source)} if source == "pictures" else {}
    return {**section, **more, "options": {**section["options"], **path, "keep": keep}}


def store(source: str, root: Path, keep: str, **more: Any) -> ShardStore:
    return build_store(Data.model_validate(data(source, root, keep, **more)), 0, root, root / "cache")


@pytest.mark.parametrize("source", SOURCES)
def test_images_labels_and_digests_are_those_from_memory(source: str, tmp_path: Path) -> None:
    memory, disk = (store(source, tmp_path, keep, server_share=0.2) for keep in ("memory", "disk"))
    assert disk.provenance.digest == memory.provenance.digest
    for name in ("train", "test", "server"):
        one, other = memory.samples(name), disk.samples(name)
        assert isinstance(one.x, np.ndarray | IndexedRows)
        assert isinstance(other.x, ImageRows)
        assert other.x.shape == one.x.shape
        np.testing.assert_array_equal(other.x, one.x)
        np.testing.assert_array_equal(other.x[1:2], one.x[1:2])
        np.testing.assert_array_equal(other.y, one.y)


def test_a_run_has_the_same_bits_on_any_number_of_hosts(tmp_path: Path) -> None:
    phases = [{"name": "p", "rounds": 2, "cohort": 3, "local": {"lr": 0.1, "batch_size": 4}}]
    vectors = []
    for keep, hosts in (("memory", 1), ("disk", 1), ("disk", 3)):
        tables = {"data": data("pictures", tmp_path, keep, augment=["flip"]), "model": MLP, "phases": phases}
        vectors.append(run_on_hosts(prepare(Scenario.from_tables(tables), tmp_path)[0], hosts)[0])
    assert np.array_equal(vectors[0], vectors[1])
    assert np.array_equal(vectors[0], vectors[2])


def test_hosts_receive_names_and_not_pixels(tmp_path: Path) -> None:
    rows = store("inaturalist", tmp_path, "disk").train.x
    sent = pickle.dumps(rows)
    assert len(sent) < len(rows) * (32 + rows.names.itemsize) + 1000
    received = pickle.loads(sent)  # noqa: S301 - as Ray does between its own processes
    np.testing.assert_array_equal(received, rows)


def test_a_checked_folder_is_not_decoded_again_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store("pictures", tmp_path, "disk")
    (kept,) = (tmp_path / "cache").glob("image_folder-*-checked.parquet")
    assert kept.stat().st_size < 24 * 8 * 8 * 3, "digests alone"
    opened: list[Any] = []
    whole = Image.open

    def recorded(file: Any, **options: Any) -> Image.Image:
        opened.append(file)
        return whole(file, **options)

    monkeypatch.setattr(Image, "open", recorded)
    store("pictures", tmp_path, "disk")
    assert not opened
    save(tmp_path / "pictures" / "cat" / "3.png", np.zeros((9, 12, 3), np.uint8))
    store("pictures", tmp_path, "disk")
    assert len(opened) == 24


@pytest.mark.parametrize("source", SOURCES)
def test_a_damaged_file_is_found_at_the_start(source: str, tmp_path: Path) -> None:
    data(source, tmp_path, "disk")
    last = max((tmp_path / source).rglob("*.png" if source != "inaturalist" else "*.jpg"))
    last.write_bytes(last.read_bytes()[:60])
    with pytest.raises(DataError, match=rf"{last.name}: cannot be read as an? .*image, truncated or corrupt\?"):
        store(source, tmp_path, "disk")


def test_a_file_that_changes_or_disappears_during_a_run_is_named(tmp_path: Path) -> None:
    rows = store("pictures", tmp_path, "disk").train.x
    file = tmp_path / "pictures" / rows.names[0].decode()
    save(file, np.zeros((9, 11, 3), np.uint8))
    with pytest.raises(DataError, match=rf"{file.name}: has changed since the data was checked; start again"):
        rows[:1]
    file.unlink()
    with pytest.raises(DataError, match=rf"{file.name}: cannot be read as an image"):
        rows[:1]

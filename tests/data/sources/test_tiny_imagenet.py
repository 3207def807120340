"""Tiny-ImageNet from its folder: classes in the order of wnids.txt, validation images by their annotations."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms

from rayfl.data.dataset import Dataset
from rayfl.data.sources import tiny_imagenet
from rayfl.errors import DataError

WNIDS = [f"n{number:08d}" for number in np.random.default_rng(0).permutation(200)]


def _colour(number: int) -> tuple[int, int, int]:
    return number, 255 - number, 100


def _save(file: Path, number: int, mode: str = "RGB") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_jpeg(number, mode))


@cache
def _jpeg(number: int, mode: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), _colour(number)).convert(mode).save(file, "JPEG", quality=95)
    return file.getvalue()


def _write(data_dir: Path) -> Path:
    """Every class has one training image, the first class two; four validation images, out of order."""
    folder = data_dir / "tiny-imagenet-200"
    for number, wnid in enumerate(WNIDS):
        _save(folder / "train" / wnid / "images" / f"{wnid}_0.JPEG", number)
    _save(folder / "train" / WNIDS[0] / "images" / f"{WNIDS[0]}_1.JPEG", 0, "L")
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    lines = []
    for row, number in enumerate((7, 3, 150, 7)):
        _save(folder / "val" / "images" / f"val_{row}.JPEG", number)
        lines.append(f"val_{row}.JPEG\t{WNIDS[number]}\t0\t0\t62\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


def _load(tmp_path: Path, source: str = "files") -> Dataset:
    return tiny_imagenet.load(source, tmp_path / "data", tmp_path / "cache", 0)  # type: ignore[arg-type]


def test_classes_follow_wnids_and_validation_images_their_annotations(tmp_path: Path) -> None:
    folder = _write(tmp_path / "data")
    dataset = _load(tmp_path, "auto")
    x = np.asarray(dataset.train.x)
    assert x.shape == (201, 64, 64, 3)
    assert x.dtype == np.uint8
    assert dataset.train.y.tolist() == [0, 0, *range(1, 200)]
    assert dataset.test.y.tolist() == [7, 3, 150, 7]
    rows = [0, *range(2, 201)]
    assert np.abs(x[rows].mean((1, 2)) - [_colour(number) for number in range(200)]).max() < 3, "beyond JPEG's loss"
    grey = x[1]
    assert (grey == grey[..., :1]).all()
    seen = np.asarray(dataset.test.x).mean((1, 2))
    assert np.abs(seen - [_colour(number) for number in dataset.test.y]).max() < 3
    assert dataset.natural is None
    assert "a subset: 201 training and 4 test images of the 100000 and 10000" in dataset.provenance.description
    named = [path for path, _ in dataset.provenance.files]
    assert named[:2] == [str(folder / "wnids.txt"), str(folder / "val" / "val_annotations.txt")]
    assert named[2] == f"{folder}: the sha256 of the sha256 of its 205 images"


def test_data_from_the_cache_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "data")
    first = _load(tmp_path)
    monkeypatch.setattr("rayfl.data.formats.image_files.Image.open", None)
    again = _load(tmp_path)
    np.testing.assert_array_equal(np.asarray(first.train.x), np.asarray(again.train.x))
    assert first.provenance == again.provenance


def test_a_corrupt_image_is_named(tmp_path: Path) -> None:
    file = _write(tmp_path / "data") / "train" / WNIDS[5] / "images" / f"{WNIDS[5]}_0.JPEG"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(DataError, match=f"{file}: cannot be read as an image, truncated or corrupt?"):
        _load(tmp_path)


def test_a_missing_validation_image_is_named(tmp_path: Path) -> None:
    file = _write(tmp_path / "data") / "val" / "images" / "val_2.JPEG"
    file.unlink()
    with pytest.raises(DataError, match=f"{file}: cannot be read"):
        _load(tmp_path)


def test_a_class_without_images_is_named(tmp_path: Path) -> None:
    images = _write(tmp_path / "data") / "train" / WNIDS[9] / "images"
    (images / f"{WNIDS[9]}_0.JPEG").unlink()
    with pytest.raises(DataError, match=f"{images}: has no images; wnids.txt names this class"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("wnids.txt", None, "cannot be read"),
        ("wnids.txt", "n1\nn2\n", "names 2 classes, not 200"),
        ("val/val_annotations.txt", None, "cannot be read"),
        ("val/val_annotations.txt", "val_0.JPEG\tn404\n", "line 1 is not a file and one of the classes of wnids.txt"),
        ("val/val_annotations.txt", f"../../x.JPEG\t{WNIDS[0]}\n", "'../../x.JPEG' is not a place inside its folder"),
        ("val/val_annotations.txt", "val_0.JPEG\n", "line 1 is not a file and one of the classes of wnids.txt"),
    ],
)
def test_lists_of_another_form_are_named(tmp_path: Path, file: str, content: str | None, message: str) -> None:
    folder = _write(tmp_path / "data")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(DataError, match=f"{folder / file}: {message}"):
        _load(tmp_path)


def test_without_a_folder_the_message_says_where_it_looked_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"not found: looked in .*/tiny_imagenet and .* for tiny-imagenet-200/; get it from cs231n",
    ) as raised:
        _load(tmp_path)
    (folder,) = re.findall(r"unpacked in (\S+)$", str(raised.value))
    (Path(folder) / "tiny-imagenet-200").mkdir(parents=True)
    with pytest.raises(DataError, match=f"{folder}/tiny-imagenet-200/wnids.txt: cannot be read"):
        _load(tmp_path)


@pytest.mark.usefixtures("few_writers")
def test_the_stand_in_says_so(tmp_path: Path, generated: Path) -> None:
    dataset = tiny_imagenet.load("auto", tmp_path / "data", generated, 0)
    assert dataset.train.x.shape[1:] == (64, 64, 3)
    assert dataset.num_classes == 200
    assert dataset.provenance.source == "generated"
    start = "Stand-in for Tiny-ImageNet (generated coloured digits), not real data: no files in"
    assert dataset.provenance.description.startswith(start)


def test_images_are_scaled_as_torchvision_scales_them(tmp_path: Path) -> None:
    """NIID-Bench's Resize(32)."""
    folder = _write(tmp_path / "data")
    file = folder / "train" / WNIDS[0] / "images" / f"{WNIDS[0]}_0.JPEG"
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(file, "JPEG", quality=95)
    dataset = tiny_imagenet.load("files", tmp_path / "data", tmp_path / "cache", 0, size=32)
    expected = np.asarray(transforms.Resize(32)(Image.open(file)))
    np.testing.assert_array_equal(np.asarray(dataset.train.x)[0], expected)
    assert "scaled to 32 x 32" in dataset.provenance.description

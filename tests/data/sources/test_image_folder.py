"""Folders of images by class, or by domain and class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rayfl.config.registry import call_with_options
from rayfl.data.dataset import Dataset
from rayfl.data.formats import image_files
from rayfl.data.sources import image_folder
from rayfl.errors import DataError, ScenarioError

CLASSES = ("cat", "dog", "elk")
DOMAINS = ("photo", "art", "sketch")


def _save(file: Path, colour: tuple[int, ...] | int, mode: str = "RGB", size: tuple[int, int] = (8, 8)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(file)


def _by_class(root: Path, count: int = 10) -> None:
    for label, name in enumerate(CLASSES):
        for number in range(count):
            _save(root / name / f"{number:02d}.png", (label, number, 0))


def _by_domain(root: Path) -> None:
    for place, domain in enumerate(DOMAINS):
        for label, name in enumerate(CLASSES):
            for number in range(10):
                _save(root / domain / name / f"{number}.png", (label, number, place))


def _load(tmp_path: Path, **options: Any) -> Dataset:
    given = {"source": "auto", "cache_dir": tmp_path / "cache", "seed": options.pop("seed", 0)}
    options = {"path": str(tmp_path / "pictures"), "size": 8, **options}
    dataset: Dataset = call_with_options(image_folder.load_image_folder, options, given, "data.options")
    return dataset


def _pixels(dataset: Dataset, part: str) -> np.ndarray:
    """[n, 3]: the colour of each image."""
    x = np.asarray(getattr(dataset, part).x)
    assert (x == x[:, :1, :1]).all()
    return x[:, 0, 0]


def test_a_folder_by_class_is_split_within_every_class_by_the_seed(tmp_path: Path) -> None:
    _by_class(tmp_path / "pictures")
    dataset = _load(tmp_path, test_share=0.2)
    assert (dataset.num_classes, dataset.natural) == (3, None)
    assert np.bincount(dataset.train.y).tolist() == [8, 8, 8]
    assert np.bincount(dataset.test.y).tolist() == [2, 2, 2]
    assert _pixels(dataset, "train")[:, 0].tolist() == dataset.train.y.tolist()
    seen = [tuple(pixel) for part in ("train", "test") for pixel in _pixels(dataset, part).tolist()]
    assert sorted(seen) == [(label, number, 0) for label in range(3) for number in range(10)]
    again, other = _load(tmp_path, test_share=0.2), _load(tmp_path, test_share=0.2, seed=1)
    np.testing.assert_array_equal(_pixels(dataset, "test"), _pixels(again, "test"))
    assert not np.array_equal(_pixels(dataset, "test"), _pixels(other, "test"))
    assert "30 images of" in dataset.provenance.description
    assert "0.2 drawn for testing" in dataset.provenance.description


def test_domains_are_natural_clients_and_a_class_is_one_class_in_all(tmp_path: Path) -> None:
    _by_domain(tmp_path / "pictures")
    dataset = _load(tmp_path)
    assert dataset.natural is not None
    assert dataset.natural.names == ("art", "photo", "sketch")
    assert dataset.num_classes == 3
    for client, domain in enumerate(dataset.natural.names):
        for part, count in (("train", 27), ("test", 3)):
            rows = getattr(dataset.natural, part)[client]
            assert len(rows) == count
            assert (_pixels(dataset, part)[rows, 2] == DOMAINS.index(domain)).all()
    assert _pixels(dataset, "train")[:, 0].tolist() == dataset.train.y.tolist()


def test_domains_can_be_chosen(tmp_path: Path) -> None:
    _by_domain(tmp_path / "pictures")
    dataset = _load(tmp_path, domains=["sketch", "photo"])
    assert dataset.natural is not None
    assert dataset.natural.names == ("photo", "sketch")
    assert set(_pixels(dataset, "train")[:, 2].tolist()) == {0, 2}


@pytest.mark.parametrize("write", [_by_class, _by_domain])
@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("Train", "TEST"), ("Training", "Testing")])
def test_a_split_into_train_and_test_is_kept(tmp_path: Path, write: Any, train: str, test: str) -> None:
    write(tmp_path / "pictures" / train)
    _by_class(tmp_path / "pictures" / "val")
    _save(tmp_path / "pictures" / test / ("photo" if write is _by_domain else "") / "elk" / "x.png", (2, 99, 0))
    dataset = _load(tmp_path)
    assert dataset.test.y.tolist() == [2]
    assert _pixels(dataset, "test").tolist() == [[2, 99, 0]]
    assert len(dataset.train) == (90 if write is _by_domain else 30)
    assert f"its {train}/ and {test}/" in dataset.provenance.description


def test_images_of_any_mode_and_shape_become_square_rgb(tmp_path: Path) -> None:
    root = tmp_path / "pictures" / "train" / "all"
    _save(tmp_path / "pictures" / "test" / "all" / "x.png", 0)
    _save(root / "a.png", 77, "L")
    _save(root / "b.png", (1, 2, 3, 40), "RGBA")
    Image.new("P", (8, 8), 0).save(root / "c.png", transparency=0)
    _save(root / "d.jpg", (200, 100, 50), size=(40, 16))
    Image.fromarray(np.kron([[0, 9, 9, 0]], np.ones((2, 1))).astype(np.uint8)).save(root / "e.png")
    (root / "Thumbs.db").write_bytes(b"no image")
    (root / ".hidden.png").write_bytes(b"no image")
    dataset = _load(tmp_path, size=2)
    x = np.asarray(dataset.train.x)
    assert x.shape == (5, 2, 2, 3)
    assert x[:3, 0, 0].tolist() == [[77, 77, 77], [1, 2, 3], [0, 0, 0]]
    assert np.abs(x[3].astype(int) - [200, 100, 50]).max() <= 3
    assert (x[4] == 9).all(), "cut in the middle, not squeezed"


def test_decoded_images_are_cached_until_a_file_or_the_size_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _by_class(tmp_path / "pictures")
    first = _load(tmp_path)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    _load(tmp_path)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    (cached,) = (tmp_path / "cache").iterdir()
    cached.write_bytes(cached.read_bytes()[:-9])
    told: list[str] = []
    monkeypatch.setattr(image_files._log, "warning", lambda text, *of: told.append(text % of))
    again = _load(tmp_path)
    (once,) = told
    assert once.startswith(f"decoding images again, because the cache file is damaged: {cached}")
    np.testing.assert_array_equal(np.asarray(first.train.x), np.asarray(again.train.x))
    _load(tmp_path, size=4)
    assert len(list((tmp_path / "cache").iterdir())) == 2
    _save(tmp_path / "pictures" / "cat" / "00.png", (0, 200, 0), size=(9, 9))
    changed = _load(tmp_path)
    assert 200 in [*_pixels(changed, "train")[:, 1], *_pixels(changed, "test")[:, 1]]
    assert changed.provenance.files != first.provenance.files


@pytest.mark.parametrize("damage", ["truncated", "empty", "text"])
def test_a_damaged_image_is_named(tmp_path: Path, damage: str) -> None:
    _by_class(tmp_path / "pictures")
    file = tmp_path / "pictures" / "dog" / "03.png"
    file.write_bytes({"truncated": file.read_bytes()[:-30], "empty": b"", "text": b"<html>"}[damage])
    with pytest.raises(DataError, match=f"{file}: cannot be read as an image, truncated or corrupt?"):
        _load(tmp_path)


def test_deep_images_are_named(tmp_path: Path) -> None:
    _by_class(tmp_path / "pictures")
    file = tmp_path / "pictures" / "dog" / "x.png"
    _save(file, 1000, "I;16")
    with pytest.raises(DataError, match=f"{file}: has pixels of mode I;16; convert it to 8 bits per channel"):
        _load(tmp_path)


def test_only_the_supported_formats_are_read(tmp_path: Path) -> None:
    for number in range(2):
        _save(tmp_path / "grey" / "cat" / f"{number}.pgm", number, "L")
    assert _load(tmp_path, path=str(tmp_path / "grey")).train.x.shape == (1, 8, 8, 3)
    _by_class(tmp_path / "pictures")
    file = tmp_path / "pictures" / "dog" / "03.png"
    Image.new("RGB", (8, 8)).save(file, "PCX")
    with pytest.raises(DataError, match=f"{file}: cannot be read as an image"):
        _load(tmp_path)


def test_an_image_that_is_far_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _by_class(tmp_path / "pictures")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    with pytest.raises(DataError, match=rf"{tmp_path}/pictures/.*: the image is too large; make it smaller \("):
        _load(tmp_path)


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    _by_class(tmp_path / "pictures")
    (tmp_path / "pictures" / "gnu").mkdir()
    with pytest.raises(DataError, match=f"{tmp_path / 'pictures' / 'gnu'}: has no images; remove the folder or fill"):
        _load(tmp_path)


def test_classes_beside_domains_are_named(tmp_path: Path) -> None:
    _by_domain(tmp_path / "pictures")
    _save(tmp_path / "pictures" / "zebra" / "x.png", 0)
    with pytest.raises(DataError, match=f"{tmp_path / 'pictures' / 'zebra'}: has images, but folders beside"):
        _load(tmp_path)


def test_images_beside_the_classes_of_a_domain_are_named(tmp_path: Path) -> None:
    _by_domain(tmp_path / "pictures")
    _save(tmp_path / "pictures" / "art" / "x.png", 0)
    with pytest.raises(DataError, match=f"{tmp_path / 'pictures' / 'art'}: has images and folders; a folder is"):
        _load(tmp_path)


def test_a_folder_without_folders_is_named(tmp_path: Path) -> None:
    _save(tmp_path / "pictures" / "x.png", 0)
    with pytest.raises(DataError, match=r"pictures: has no folders with images; expected class/image or domain/class"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("folders", "named"),
    [
        (("train",), "train/"),
        (("train", "val"), "train/ and val/"),
        (("training", "validation"), "training/ and validation/"),
        (("train", "Training", "test"), "Training/ and train/ and test/"),
        (("photo", "valid"), "valid/"),
    ],
)
def test_folders_that_look_like_a_split_are_named_unless_they_are_chosen_as_domains(
    tmp_path: Path, folders: tuple[str, ...], named: str
) -> None:
    for folder in folders:
        _by_class(tmp_path / "pictures" / folder)
    with pytest.raises(DataError, match=f"pictures: has {named}; give it one train/ and one test/, or rename"):
        _load(tmp_path)
    natural = _load(tmp_path, domains=list(folders)).natural
    assert natural is not None
    assert natural.names == tuple(sorted(folders))


def test_a_class_may_be_called_valid(tmp_path: Path) -> None:
    for label in ("valid/x.png", "valid/y.png", "invalid/x.png"):
        _save(tmp_path / "pictures" / label, 0)
    assert _load(tmp_path).num_classes == 2


def test_a_split_with_domains_in_one_part_is_named(tmp_path: Path) -> None:
    _by_domain(tmp_path / "pictures" / "train")
    _by_class(tmp_path / "pictures" / "test")
    with pytest.raises(DataError, match="only one of train/ and test/ has folders of domains above those of classes"):
        _load(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"data\.options\.path: {tmp_path / 'pictures'} is not a folder"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domains": ["photos"]}, r"data\.options\.domains: no domain 'photos'; did you mean 'photo'\?"),
        ({"domains": []}, r"data\.options\.domains: "),
        ({"test_share": 1.0}, r"data\.options\.test_share: .*less than 1"),
    ],
)
def test_impossible_options_raise(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    _by_domain(tmp_path / "pictures")
    with pytest.raises(ScenarioError, match=message):
        _load(tmp_path, **options)


def test_a_share_for_a_split_folder_raises(tmp_path: Path) -> None:
    for part in ("train", "test"):
        _by_class(tmp_path / "pictures" / part)
    with pytest.raises(ScenarioError, match=r"data\.options\.test_share: .*pictures is already split into train/ and"):
        _load(tmp_path, test_share=0.5)


def test_a_class_of_two_images_has_one_of_each_and_a_class_of_one_is_trained_on(tmp_path: Path) -> None:
    _by_class(tmp_path / "pictures", 2)
    _save(tmp_path / "pictures" / "fox" / "x.png", (3, 0, 0))
    dataset = _load(tmp_path)
    assert dataset.train.y.tolist() == [0, 1, 2, 3]
    assert dataset.test.y.tolist() == [0, 1, 2]


def test_domains_raise_if_there_are_none(tmp_path: Path) -> None:
    _by_class(tmp_path / "pictures")
    with pytest.raises(ScenarioError, match=r"data\.options\.domains: the folder has classes but no domains; leave it"):
        _load(tmp_path, domains=["cat"])


def test_path_and_size_are_required_and_nothing_is_generated(tmp_path: Path) -> None:
    given = {"source": "generated", "cache_dir": tmp_path, "seed": 0}
    with pytest.raises(ScenarioError, match=r"data\.options: needs path, size"):
        call_with_options(image_folder.load_image_folder, {}, given, "data.options")
    with pytest.raises(ScenarioError, match="'image_folder' has nothing to generate; choose 'auto' or 'files'"):
        call_with_options(image_folder.load_image_folder, {"path": "x", "size": 8}, given, "data.options")

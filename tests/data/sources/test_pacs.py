"""PACS: the folders of its distributions, its domains, and its stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rayfl.config.registry import call_with_options
from rayfl.data.dataset import Dataset
from rayfl.data.sources import pacs
from rayfl.data.sources.pacs import CLASSES
from rayfl.errors import DataError, ScenarioError

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


def write(root: Path, domains: tuple[str, ...] = DOMAINS, classes: tuple[str, ...] = CLASSES, count: int = 5) -> Path:
    """Images of one colour each: (class, number, domain); only photos are JPEG, in grey because it is lossy."""
    for place, domain in enumerate(domains):
        for label, name in enumerate(classes):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(count):
                colour = (30 * label, 40 * number, 60 * place)
                if domain == "photo":
                    Image.new("RGB", (64, 48), (colour[0],) * 3).save(folder / f"056_{number:04d}.jpg", quality=95)
                else:
                    Image.new("RGB", (40, 40), colour).save(folder / f"pic_{number:03d}.png")
    return root


def load(tmp_path: Path, source: str = "files", seed: int = 0, **options: Any) -> Dataset:
    given = {"source": source, "data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache", "seed": seed}
    dataset: Dataset = call_with_options(pacs.load, {"size": 32, **options}, given, "data.options")
    return dataset


def colours(dataset: Dataset, part: str) -> np.ndarray:
    """[n, 3]: the colour of each image."""
    pixels: np.ndarray = np.asarray(getattr(dataset, part).x)[:, 16, 16]
    return pixels


@pytest.mark.parametrize("place", ["pacs", "PACS", "pacs/kfold", "pacs/images", "pacs/PACS"])
def test_the_folders_of_its_distributions_are_found(tmp_path: Path, place: str) -> None:
    write(tmp_path / "data" / place)
    (tmp_path / "data" / place / "splits").mkdir()
    dataset = load(tmp_path)
    assert dataset.natural is not None
    assert dataset.natural.names == DOMAINS
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (4 * 7 * 4, 4 * 7, 7)
    assert dataset.provenance.source == "files"


def test_labels_and_domains_are_those_of_the_folders(tmp_path: Path) -> None:
    write(tmp_path / "data" / "pacs")
    dataset = load(tmp_path)
    assert dataset.natural is not None
    assert dataset.natural.test is not None
    for part, shards in (("train", dataset.natural.train), ("test", dataset.natural.test)):
        y, seen = getattr(dataset, part).y, colours(dataset, part).astype(int)
        assert abs(seen[:, 0] - 30 * y).max() <= 2
        for domain, name in enumerate(DOMAINS):
            if name != "photo":
                assert set(seen[shards[domain], 2]) == {60 * domain}


def test_names_in_capitals_and_art_for_art_paintings_make_no_difference(tmp_path: Path) -> None:
    write(tmp_path / "a" / "data" / "pacs")
    names = tuple(name.capitalize() for name in CLASSES)
    for folder, domain in (("Art", "art_painting"), ("ArtPainting", "art_painting"), ("Sketch", "sketch")):
        other = tmp_path / folder
        write(other / "data" / "pacs", (folder,), names)
        found, expected = load(other, domains=[domain]), load(tmp_path / "a", domains=[domain])
        np.testing.assert_array_equal(found.train.y, expected.train.y)
        np.testing.assert_array_equal(colours(found, "test")[:, :2], colours(expected, "test")[:, :2])


def test_domains_can_be_chosen_and_are_sorted(tmp_path: Path) -> None:
    write(tmp_path / "data" / "pacs")
    dataset, again = (
        load(tmp_path, domains=["photo", "art_painting"]),
        load(tmp_path, domains=["art_painting", "photo"]),
    )
    assert dataset.natural is not None
    assert dataset.natural.names == ("art_painting", "photo")
    np.testing.assert_array_equal(np.asarray(dataset.train.x), np.asarray(again.train.x))
    assert len(dataset.train) + len(dataset.test) == 70
    assert "70 images, not the published 3718; 32 x 32 pixels" in dataset.provenance.description


def test_each_class_of_each_domain_has_its_share_of_test_images_by_the_seed(tmp_path: Path) -> None:
    write(tmp_path / "data" / "pacs", count=10)
    dataset, again, other = (load(tmp_path, seed=seed, test_share=0.3) for seed in (0, 0, 1))
    assert dataset.natural is not None
    assert dataset.natural.test is not None
    for domain in range(4):
        of_domain = dataset.test.y[dataset.natural.test[domain]]
        assert np.bincount(of_domain, minlength=7).tolist() == [3] * 7
    np.testing.assert_array_equal(colours(dataset, "test"), colours(again, "test"))
    assert not np.array_equal(colours(dataset, "test"), colours(other, "test"))


def test_the_digest_changes_with_an_image(tmp_path: Path) -> None:
    root = write(tmp_path / "data" / "pacs")
    first = load(tmp_path).provenance.files
    Image.new("RGB", (40, 40), (1, 2, 3)).save(root / "sketch" / "dog" / "pic_000.png")
    (other,) = load(tmp_path).provenance.files
    assert [other] != list(first)
    assert other[0] == first[0][0]


def test_a_missing_domain_is_named(tmp_path: Path) -> None:
    root = write(tmp_path / "data" / "pacs", ("photo", "cartoon"))
    with pytest.raises(DataError, match=f"{root}: has no folder of domain 'sketch', only cartoon, photo"):
        load(tmp_path, "auto", domains=["photo", "sketch"])


def test_a_domain_with_two_folders_is_named(tmp_path: Path) -> None:
    root = write(tmp_path / "data" / "pacs", ("art", "art_painting"))
    with pytest.raises(DataError, match=f"{root}: has two folders of domain 'art_painting', art and art_painting"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (CLASSES[:6], "photo: has no folder of class 'person'"),
        ((*CLASSES, "yak"), "photo/yak: is not a class of PACS; expected dog, elephant"),
    ],
)
def test_other_classes_are_named(tmp_path: Path, classes: tuple[str, ...], message: str) -> None:
    write(tmp_path / "data" / "pacs", ("photo",), classes)
    with pytest.raises(DataError, match=message):
        load(tmp_path, domains=["photo"])


def test_an_empty_class_and_a_damaged_image_are_named(tmp_path: Path) -> None:
    root = write(tmp_path / "data" / "pacs", ("cartoon",), count=2)
    image = root / "cartoon" / "dog" / "pic_000.png"
    image.write_bytes(image.read_bytes()[:-30])
    with pytest.raises(DataError, match=f"{image}: cannot be read as an image, truncated or corrupt"):
        load(tmp_path, domains=["cartoon"])
    for file in image.parent.iterdir():
        file.unlink()
    with pytest.raises(DataError, match=f"{image.parent}: has no images"):
        load(tmp_path, domains=["cartoon"])


def test_without_files_the_message_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"PACS not found: looked in .*/pacs and .*/PACS for art_painting/, cartoon"):
        load(tmp_path)


@pytest.mark.usefixtures("few_writers")
def test_the_stand_in_has_the_domains_and_says_so(tmp_path: Path) -> None:
    every, fewer = load(tmp_path, "auto"), load(tmp_path, "generated", domains=["sketch", "photo"])
    assert every.natural is not None
    assert fewer.natural is not None
    assert (every.natural.names, fewer.natural.names) == (DOMAINS, ("photo", "sketch"))
    start = "Stand-in for PACS (generated handwritten digits in four styles), not real data: no files in"
    assert every.provenance.description.startswith(start)
    assert fewer.train.x.shape[1:] == (32, 32, 3)
    for domain in fewer.natural.names:
        of_domain = [dataset.natural.train[dataset.natural.names.index(domain)] for dataset in (every, fewer)]  # type: ignore[union-attr]
        np.testing.assert_array_equal(every.train.y[of_domain[0]], fewer.train.y[of_domain[1]])
    assert set(every.train.y.tolist()) == set(range(7))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domains": ["photos"]}, r"data\.options\.domains\.0: "),
        ({"domains": []}, r"data\.options\.domains: "),
        ({"size": 50}, r"data\.options\.size: .*multiple of 32"),
    ],
)
def test_impossible_options_raise(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        load(tmp_path, "generated", **options)

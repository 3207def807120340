"""Any folder of images, with one folder per class, or one per domain with class folders inside; and ImageNet-1K.

Domains, if any (PACS: photo, art_painting, cartoon, sketch), are the natural clients. ImageNet-1K (ILSVRC 2012): its
training images, one folder for each of the 1000 classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rayfl.config.registry import nearest
from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.image_files import (
    TEST_SHARE,
    Keep,
    ListedImages,
    dataset_of_images,
    decoded,
    drawn_for_testing,
    image_files,
    subfolders,
)
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream

_KEYS = ("files", "classes", "domains")


def load_image_folder(
    source: Literal["auto", "files", "generated"],
    cache_dir: Path,
    seed: int,
    path: Path,
    size: Annotated[int, Field(ge=1, le=4096)],
    test_share: Annotated[float, Field(gt=0, lt=1)] | None = None,
    domains: Annotated[tuple[str, ...], Field(min_length=1)] | None = None,
    keep: Keep = "memory",
) -> Dataset:
    """Reads the images under `path`: class/image or domain/class/image, either also under train/ and test/.

    These may also be called Train/ and Test/, or Training/ and Testing/; other folders beside them are not read.

    Classes and domains are numbered by sorted name; a class is the same in all domains. Files other than images are
    ignored. Grey, palette and RGBA images become RGB.

    Args:
        path: Path of the folder.
        size: Images are cropped to the central square and scaled to size x size pixels.
        test_share: Share of the images of each class, or of each class in a domain, drawn for testing with the seed of
            the data: at least one of two; 0.1 by default. Not allowed if the folder is split into train/ and test/.
        domains: Domains to keep; all by default. Folders named here are domains whatever they are called.
        keep: "memory" holds the decoded images, and caches them in `cache_dir`; "disk" decodes them for every batch,
            from files at the same paths on every node, with the same results.

    Returns:
        x [n, size, size, 3] uint8, y [n] int64; domains, if any, as natural clients.

    Raises:
        ScenarioError: A domain is unknown or there are none, a share is given for a split folder, or `source` is
            "generated".
        DataError: The folder does not exist, it or one of its classes has no images, its folders look like a split
            without being one (named), or an image is damaged (named).
    """
    if source == "generated":
        raise ScenarioError("data.source: 'image_folder' has nothing to generate; choose 'auto' or 'files'")
    split = _split(path, domains or ())
    if split and test_share is not None:
        raise ScenarioError(f"data.options.test_share: {path} is already split into {_names(split)}; leave it out")
    parts = [_listed(folder) for folder in split or [path]]
    if len({any(part.domains) for part in parts}) > 1:
        raise DataError(f"{path}: only one of {_names(split)} has folders of domains above those of classes; move it")
    if domains is not None:
        parts = [_only(part, domains) for part in parts]
    files, classes, of_domain = ([entry for part in parts for entry in getattr(part, key)] for key in _KEYS)
    class_names, label = np.unique(classes, return_inverse=True)
    domain_names, domain = np.unique(of_domain, return_inverse=True)
    if split:
        is_test = np.repeat([False, True], [len(part.files) for part in parts])
        how = f"its {_names(split)}"
    else:
        share = TEST_SHARE if test_share is None else test_share
        is_test = drawn_for_testing(domain * len(class_names) + label, share, stream(seed, "partition", 2))
        how = f"{share:g} drawn for testing"
    every = decoded(path, files, size, cache_dir, "image_folder", keep)
    description = f"{len(files)} images of {path}, {len(class_names)} classes"
    if any(domain_names):
        description += f", domains {', '.join(domain_names)}"
    digest = (f"{path}: the sha256 of the sha256 of its images", every.sha256)
    provenance = Provenance("files", f"{description}; {size} x {size} pixels, {how}", (digest,))
    return dataset_of_images(
        f"image_folder {path.name}",
        every.images,
        label,
        domain,
        is_test,
        len(class_names),
        domain_names.tolist(),
        provenance,
    )


_TRAIN, _TEST, _VALIDATION = ("train", "training"), ("test", "testing"), ("val", "valid", "validation")


def _split(root: Path, domains: Sequence[str]) -> list[Path]:
    """The folders of the training and of the test images; none if the folder is not split."""
    if not root.is_dir():
        raise DataError(f"data.options.path: {root} is not a folder")
    folders = subfolders(root)
    if domains and {folder.name for folder in folders}.issuperset(domains):
        return []
    train, test, validation = (
        [folder for folder in folders if folder.name.lower() in names] for names in (_TRAIN, _TEST, _VALIDATION)
    )
    if len(train) == len(test) == 1:
        return train + test
    if found := train + test + [folder for folder in validation if subfolders(folder)]:
        raise DataError(
            f"{root}: has {_names(found)}; give it one train/ and one test/, or rename them (domains: list them in "
            "data.options.domains)"
        )
    return []


def _names(folders: Sequence[Path]) -> str:
    return " and ".join(f"{folder.name}/" for folder in folders)


def _listed(folder: Path) -> ListedImages:
    listed = ListedImages([], [], [])
    for outer in subfolders(folder):
        inner = subfolders(outer)
        if inner and image_files(outer):
            raise DataError(f"{outer}: has images and folders; a folder is either a class or a domain")
        for images, domain in [(part, outer.name) for part in inner] if inner else [(outer, "")]:
            files = image_files(images)
            if not files:
                raise DataError(f"{images}: has no images; remove the folder or fill it")
            listed.files.extend(files)
            listed.classes.extend([images.name] * len(files))
            listed.domains.extend([domain] * len(files))
    if not listed.files:
        raise DataError(f"{folder}: has no folders with images; expected class/image or domain/class/image")
    if "" in listed.domains and set(listed.domains) != {""}:
        flat = listed.files[listed.domains.index("")].parent
        raise DataError(f"{flat}: has images, but folders beside it have class folders; use one of the two layouts")
    return listed


def _only(listed: ListedImages, domains: Sequence[str]) -> ListedImages:
    known = set(listed.domains)
    if known == {""}:
        raise ScenarioError("data.options.domains: the folder has classes but no domains; leave it out")
    for domain in domains:
        if domain not in known:
            raise ScenarioError(f"data.options.domains: no domain '{domain}'; {nearest(domain, known)}")
    rows = [row for row, domain in enumerate(listed.domains) if domain in domains]
    return ListedImages(*([getattr(listed, key)[row] for row in rows] for key in _KEYS))


def load_imagenet(
    source: Literal["auto", "files", "generated"],
    data_dir: Path,
    cache_dir: Path,
    seed: int,
    size: Annotated[int, Field(ge=1, le=4096)],
    test_share: Annotated[float, Field(gt=0, lt=1)] | None = None,
) -> Dataset:
    """Reads the images in `imagenet/train` of the data folder, and draws some for testing.

    Args:
        size: Images are scaled to size x size pixels, as in `image_folder`.
        test_share: Share of the images drawn for testing, as in `image_folder`.

    Raises:
        ScenarioError: `source` is "generated".
        DataError: The folder is missing or invalid.
    """
    if source == "generated":
        raise ScenarioError("data.source: 'imagenet' has nothing to generate; choose 'auto' or 'files'")
    folder = data_dir / "imagenet" / "train"
    if not folder.is_dir():
        raise DataError(
            f"no ImageNet-1K in {data_dir}: unpack the training images of ILSVRC 2012 to {folder}, one folder per "
            "class, or set another data folder with --data-dir"
        )
    return load_image_folder(source, cache_dir, seed, folder, size, test_share)

"""PACS: seven classes of objects in four domains, art paintings, cartoons, photos and sketches.

Li et al., "Deeper, Broader and Artier Domain Generalization", ICCV 2017: 9991 images of 227 x 227 pixels. The domains
are the natural clients. Test samples are drawn; the authors' lists of training and test images are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.image_files import (
    TEST_SHARE,
    ListedImages,
    dataset_of_images,
    decoded,
    drawn_for_testing,
    image_files,
    subfolders,
)
from rayfl.data.generated import digits
from rayfl.data.inputs import Array
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")

Domain = Literal["art_painting", "cartoon", "photo", "sketch"]
Domains = Annotated[tuple[Domain, ...], Field(min_length=1)]

_IMAGES = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
_SPELLED = {
    "artpainting": "art_painting",
    "art": "art_painting",
    "cartoon": "cartoon",
    "photo": "photo",
    "sketch": "sketch",
}
"""Folder names, in lower case and without underscores."""
_FOLDERS = ("pacs", "PACS")
_INNER = ("", "kfold", "images", "PACS")


def load(
    source: Source,
    data_dir: Path,
    cache_dir: Path,
    seed: int,
    domains: Domains = ("art_painting", "cartoon", "photo", "sketch"),
    size: Annotated[int, Field(ge=32, le=512)] = 64,
    test_share: Annotated[float, Field(gt=0, lt=1)] = TEST_SHARE,
) -> Dataset:
    """Reads PACS from its folder of images, or generates digits in four styles instead.

    Looks in `data_dir`/pacs and `data_dir`/PACS for domain/class/image, directly or in kfold/, images/ or PACS/, like
    the data set and its mirrors. Names of domains and classes may be in capitals, and art paintings in "art". Classes
    are numbered by name, as by the authors. Decoded images are cached in `cache_dir`.

    Args:
        source: "files" reads the files or fails; "generated" makes handwritten digits, 0 to 6; "auto" reads the files
            if it finds any and otherwise generates.
        domains: Domains to keep.
        size: Images are scaled to size x size pixels.
        test_share: Share of the images of each class in each domain, drawn for testing with the seed of the data; the
            draw for a domain does not depend on the other domains.

    Returns:
        x [n, size, size, 3] uint8, y [n] int64 in 0..6, the chosen domains as natural clients, sorted by name.

    Raises:
        DataError: `source` is "files" and there is no folder, a domain or class is missing or unknown, or an image
            cannot be read (named).
    """
    folders = [data_dir / name for name in _FOLDERS]
    names = sorted(set(domains))
    return files_or_generated(
        source,
        title="PACS",
        kind="handwritten digits in four styles",
        folders=folders,
        looked_for="art_painting/, cartoon/, photo/ and sketch/, each with a folder of images per class",
        get=f"get it from its authors' page, sketchx.eecs.qmul.ac.uk/downloads, unpacked in {folders[0]}",
        read=lambda: _read(folders, names, size, test_share, cache_dir, seed),
        generate=lambda: _generated(names, size, test_share, cache_dir, seed),
    )


def _read(
    folders: Sequence[Path], domains: Sequence[str], size: int, test_share: float, cache_dir: Path, seed: int
) -> Dataset | None:
    root = next((place for base in folders for name in _INNER if _by_domain(place := base / name)), None)
    if root is None:
        return None
    listed = _listed(root, domains)
    every = decoded(root, listed.files, size, cache_dir, "pacs")
    counts, whole = f"{len(listed.files)} images", sum(_IMAGES[domain] for domain in domains)
    if len(listed.files) != whole:
        counts = f"{counts}, not the published {whole}"
    provenance = Provenance(
        "files",
        f"PACS, {', '.join(domains)}, {counts}; {size} x {size} pixels, {test_share:g} drawn for testing",
        ((f"{root}: the sha256 of the sha256 of its images", every.sha256),),
    )
    label = np.array([CLASSES.index(name) for name in listed.classes])
    domain = np.array([domains.index(name) for name in listed.domains])
    return _dataset(every.images, label, domain, domains, test_share, seed, provenance)


def _generated(domains: Sequence[str], size: int, test_share: float, cache_dir: Path, seed: int) -> Dataset:
    if size % 32:
        raise ScenarioError(f"data.options.size: must be a multiple of 32 for generated digits, not {size}")
    images, label, style = digits.generate_styled(cache_dir, seed, len(CLASSES), size)
    chosen = [digits.DOMAINS.index(name) for name in domains]
    mask = np.isin(style, chosen)
    description = (
        f"Handwritten digits of {digits.STYLED_WRITERS} writers, seed {seed}; a class is a digit, a domain a way to "
        f"colour ink and paper: {', '.join(domains)}; {test_share:g} drawn for testing"
    )
    provenance = Provenance("generated", description)
    domain = np.searchsorted(chosen, style[mask])
    return _dataset(images[mask], label[mask], domain, domains, test_share, seed, provenance)


def _dataset(
    images: Array,
    label: np.ndarray,
    domain: np.ndarray,
    domains: Sequence[str],
    test_share: float,
    seed: int,
    provenance: Provenance,
) -> Dataset:
    is_test = np.zeros(len(label), bool)
    for place, name in enumerate(domains):  # separate streams, so a domain does not depend on the others
        of_domain = domain == place
        rng = stream(seed, "partition", 2, list(_IMAGES).index(name))
        is_test[of_domain] = drawn_for_testing(label[of_domain], test_share, rng)
    return dataset_of_images("pacs", images, label, domain, is_test, len(CLASSES), domains, provenance)


def _listed(root: Path, domains: Sequence[str]) -> ListedImages:
    there = _by_domain(root)
    listed = ListedImages([], [], [])
    for domain in domains:
        if domain not in there:
            raise DataError(f"{root}: has no folder of domain '{domain}', only {', '.join(sorted(there))}")
        for name, folder in _classes(there[domain]):
            files = image_files(folder)
            if not files:
                raise DataError(f"{folder}: has no images")
            listed.files.extend(files)
            listed.classes.extend([name] * len(files))
            listed.domains.extend([domain] * len(files))
    return listed


def _by_domain(root: Path) -> dict[str, Path]:
    """The folders in `root` that are domains, by name of the domain; other folders are ignored."""
    folders: dict[str, Path] = {}
    for folder in subfolders(root):
        plain = "".join(letter for letter in folder.name.lower() if letter.isalnum())
        domain = _SPELLED.get(plain)
        if domain in folders:
            raise DataError(f"{root}: has two folders of domain '{domain}', {folders[domain].name} and {folder.name}")
        if domain:
            folders[domain] = folder
    return folders


def _classes(domain: Path) -> Iterator[tuple[str, Path]]:
    """The seven classes of a domain with their folders, sorted by name."""
    there = {folder.name.lower(): folder for folder in subfolders(domain)}
    for name in CLASSES:
        if name not in there:
            raise DataError(f"{domain}: has no folder of class '{name}'")
    if unknown := sorted(set(there) - set(CLASSES)):
        raise DataError(f"{there[unknown[0]]}: is not a class of PACS; expected {', '.join(CLASSES)}")
    return ((name, there[name]) for name in CLASSES)

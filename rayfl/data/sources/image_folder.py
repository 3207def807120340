"""Any folder of images: a folder for each class, or for each domain with one for each class in it.

Where there are domains (PACS: photo, art_painting, cartoon, sketch), they are the data's natural clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.image_files import Keep, decoded, image_files, subfolders
from rayfl.data.formats.listed_images import TEST_SHARE, ListedImages, dataset_of_images, drawn_for_testing
from rayfl.errors import DataError, ScenarioError
from rayfl.registry import nearest
from rayfl.streams import stream

_KEYS = ("files", "classes", "domains")


def load(
    source: Literal["auto", "files", "generated"],
    cache_dir: Path,
    seed: int,
    path: Path,
    size: Annotated[int, Field(ge=1, le=4096)],
    test_share: Annotated[float, Field(gt=0, lt=1)] | None = None,
    domains: Annotated[tuple[str, ...], Field(min_length=1)] | None = None,
    keep: Keep = "memory",
) -> Dataset:
    """The images under `path`: class/image or domain/class/image, either also under train/ and test/.

    Classes and domains are numbered by sorted name, a class is one class in all domains. Other files than images
    are passed over. Grey, palette and RGBA images become RGB.

    Args:
        path: Of the folder.
        size: Images are cut to a square in the middle and scaled to size x size pixels.
        test_share: Of the images of a class, or of a class in a domain, drawn with the scenario's seed: at least one
            where there are two; 0.1 by default. A folder that is split into train/ and test/ takes none.
        domains: Those to keep; all by default.
        keep: "memory" holds the decoded images, and keeps them in `cache_dir` too; "disk" decodes them for every batch,
            from files that lie at the same paths on every node, with the same results.

    Returns:
        x [n, size, size, 3] uint8, y [n] int64; domains as natural clients where there are any.

    Raises:
        ScenarioError: An unknown domain, domains where there are none, a share of what is already split, or `source`
            "generated".
        DataError: No such folder, no images in it or in one of its classes, or a damaged image (named).
    """
    if source == "generated":
        raise ScenarioError("data.source: 'image_folder' has nothing to generate; choose 'auto' or 'files'")
    parts = _parts(path, test_share is not None)
    if domains is not None:
        parts = [_only(part, domains) for part in parts]
    files, classes, of_domain = ([entry for part in parts for entry in getattr(part, key)] for key in _KEYS)
    class_names, label = np.unique(classes, return_inverse=True)
    domain_names, domain = np.unique(of_domain, return_inverse=True)
    if len(parts) == 2:
        is_test = np.repeat([False, True], [len(part.files) for part in parts])
        how = "its train/ and test/"
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


def _parts(root: Path, share_given: bool) -> list[ListedImages]:
    """The images under train/ and those under test/, or all of them where there are no such folders."""
    if not root.is_dir():
        raise DataError(f"data.options.path: {root} is no folder")
    split = [root / name for name in ("train", "test") if (root / name).is_dir()]
    if len(split) == 1:
        raise DataError(f"{root}: has {split[0].name}/ alone; give both train/ and test/, or none of them")
    if split and share_given:
        raise ScenarioError(f"data.options.test_share: {root} is already split into train/ and test/; leave it out")
    return [_listed(folder) for folder in split or [root]]


def _listed(folder: Path) -> ListedImages:
    listed = ListedImages([], [], [])
    for outer in subfolders(folder):
        inner = subfolders(outer)
        if inner and image_files(outer):
            raise DataError(f"{outer}: has images beside folders; a folder is a class or a domain, not both")
        for images, domain in [(part, outer.name) for part in inner] if inner else [(outer, "")]:
            found = image_files(images)
            if not found:
                raise DataError(f"{images}: has no images; remove the folder or fill it")
            listed.files.extend(found)
            listed.classes.extend([images.name] * len(found))
            listed.domains.extend([domain] * len(found))
    if not listed.files:
        raise DataError(f"{folder}: has no folders with images; wanted are class/image or domain/class/image")
    if "" in listed.domains and set(listed.domains) != {""}:
        flat = listed.files[listed.domains.index("")].parent
        raise DataError(f"{flat}: has images, where other folders beside it have classes; choose one of the two")
    return listed


def _only(listed: ListedImages, domains: Sequence[str]) -> ListedImages:
    known = set(listed.domains)
    if known == {""}:
        raise ScenarioError("data.options.domains: the folder has classes but no domains; leave it out")
    for domain in domains:
        if domain not in known:
            raise ScenarioError(f"data.options.domains: no domain '{domain}'; {nearest(domain, known)}")
    kept = [row for row, domain in enumerate(listed.domains) if domain in domains]
    return ListedImages(*([getattr(listed, key)[row] for row in kept] for key in _KEYS))

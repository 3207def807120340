"""Chest X-rays of children, healthy or with pneumonia; no natural clients.

Kermany et al., "Identifying Medical Diagnoses and Treatable Diseases by Image-Based Deep Learning", Cell 2018: 5216
training and 624 test images in folders NORMAL and PNEUMONIA.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.image_files import TEST_SHARE, Keep, dataset_of_images, drawn_for_testing
from rayfl.data.generated import digits
from rayfl.data.sources import image_folder
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError
from rayfl.streams import stream

CLASSES = ("NORMAL", "PNEUMONIA")
_STAND_IN = 1500


def load(
    source: Source,
    data_dir: Path,
    cache_dir: Path,
    seed: int,
    size: Annotated[int, Field(ge=32, le=1024)] = 224,
    keep: Keep = "memory",
) -> Dataset:
    """Reads the X-rays from their folders, or generates digits of two classes instead.

    Looks in `data_dir`/chest_xray for train/ and test/, each with NORMAL/ and PNEUMONIA/; the sixteen images of val/
    are not used.

    Args:
        source: "files" reads the files or fails; "generated" makes handwritten zeros and ones; "auto" reads the files
            if it finds any and otherwise generates.
        size: Images are scaled to size x size pixels, as in `image_folder`.
        keep: Where the decoded images are kept, as in `image_folder`.

    Returns:
        x [n, size, size, 3] uint8, y [n] int64, 1 for pneumonia.

    Raises:
        DataError: `source` is "files" and there are no folders, classes differ, or an image is damaged (named).
    """
    folder = data_dir / "chest_xray"
    return files_or_generated(
        source,
        title="Chest X-ray",
        kind="handwritten digits",
        folders=[folder],
        looked_for="train/ and test/, each with NORMAL/ and PNEUMONIA/",
        get=f"get it from data.mendeley.com/datasets/rscbjbr9sj, ChestXRay2017.zip unpacked in {data_dir}",
        read=lambda: _read(folder, cache_dir, seed, size, keep),
        generate=lambda: _generated(cache_dir, seed, size),
    )


def _read(folder: Path, cache_dir: Path, seed: int, size: int, keep: Keep) -> Dataset | None:
    if not (folder / "train").is_dir():
        return None
    for split in ("train", "test"):
        if missing := [name for name in CLASSES if not (folder / split / name).is_dir()]:
            raise DataError(f"{folder / split}: has no folder {missing[0]}; expected {' and '.join(CLASSES)}")
    loaded = image_folder.load_image_folder("files", cache_dir, seed, folder, size, keep=keep)
    if loaded.num_classes != len(CLASSES):
        raise DataError(f"{folder}: has {loaded.num_classes} classes; expected only {' and '.join(CLASSES)}")
    return replace(loaded, name="chest_xray")


def _generated(cache_dir: Path, seed: int, size: int) -> Dataset:
    rng = stream(seed, "generate", 2, _STAND_IN)
    side = -(-size // 32) * 32
    images, label, _ = digits.generate_styled(
        cache_dir, seed, len(CLASSES), side, lambda number: rng.permutation(number)[:_STAND_IN]
    )
    is_test = drawn_for_testing(label, TEST_SHARE, rng)
    description = f"Handwritten zeros and ones of {digits.STYLED_WRITERS} writers in four styles, seed {seed}"
    provenance = Provenance("generated", description)
    place = np.zeros(len(label), int)
    return dataset_of_images("chest_xray", images[:, :size, :size], label, place, is_test, len(CLASSES), (), provenance)

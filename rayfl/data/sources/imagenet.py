"""ImageNet-1K (ILSVRC 2012): its training images, a folder for each of the 1000 classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rayfl.data.dataset import Dataset
from rayfl.data.sources import image_folder
from rayfl.errors import DataError, ScenarioError


def load(
    source: Literal["auto", "files", "generated"],
    data_dir: Path,
    cache_dir: Path,
    seed: int,
    size: Annotated[int, Field(ge=1, le=4096)],
    test_share: Annotated[float, Field(gt=0, lt=1)] | None = None,
) -> Dataset:
    """The images in `imagenet/train` of the data folder, of which some are drawn for testing.

    Args:
        size: Images are scaled to size x size pixels, as by `image_folder`.
        test_share: Share of the images that is drawn for testing, as by `image_folder`.

    Raises:
        ScenarioError: `source` "generated".
        DataError: The folder is missing, or something in it is wrong.
    """
    if source == "generated":
        raise ScenarioError("data.source: 'imagenet' has nothing to generate; choose 'auto' or 'files'")
    folder = data_dir / "imagenet" / "train"
    if not folder.is_dir():
        raise DataError(
            f"no ImageNet-1K in {data_dir}: unpack the training images of ILSVRC 2012 to {folder}, a folder for each "
            "class, or name another data folder with --data-dir"
        )
    return image_folder.load(source, cache_dir, seed, folder, size, test_share)

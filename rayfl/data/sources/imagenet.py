"""ImageNet-1K (ILSVRC 2012): its training images, one folder for each of the 1000 classes."""

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
    return image_folder.load(source, cache_dir, seed, folder, size, test_share)

"""Any data set class of torchvision, by name, on files that are already there."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.dataset import Dataset, Provenance
from rayfl.errors import DataError, RayflError, ScenarioError
from rayfl.registry import check_options, nearest


def load(
    source: Literal["auto", "files", "generated"],
    data_dir: Path,
    dataset: str,
    root: Path | None = None,
    size: int | None = None,
    arguments: dict[str, Any] | None = None,
) -> Dataset:
    """A class of `torchvision.datasets` that tells training and test samples apart by `train` or by `split`.

    Args:
        dataset: Name of the class: "CIFAR10", "SVHN", "EMNIST".
        root: Where its files are, by default the data folder. Nothing is downloaded.
        size: Cuts images to a square in the middle and scales them to size x size pixels; needed where their sizes
            differ.
        arguments: Further arguments of the class, such as `{ split = "letters" }` of EMNIST.

    Returns:
        Images [n, height, width, channels] uint8, and the class's targets: classes, vectors, or maps (of images).

    Raises:
        ScenarioError: An unknown class or argument, or one whose training and test samples cannot be told apart.
        DataError: Its files are missing or damaged, images differ in size, or samples are no images.
    """
    from torchvision import datasets

    if source == "generated":
        raise ScenarioError("data.source: 'torchvision' has nothing to generate; choose 'auto' or 'files'")
    known = [name for name in datasets.__all__ if inspect.isclass(getattr(datasets, name))]
    if dataset not in known:
        raise ScenarioError(f"data.options.dataset: torchvision has no data set '{dataset}'; {nearest(dataset, known)}")
    target, given = getattr(datasets, dataset), dict(arguments or {})
    folder = data_dir if root is None else root
    where = f"torchvision's {dataset} in {folder}"
    parts = {}
    for part in ("train", "test"):
        given_too = {"root": str(folder), **_which(target, part, given, dataset)}
        check_options(target, given, given_too, "data.options.arguments")
        try:
            parts[part] = _arrays(target(**given_too, **given), size, f"{where}, {part}")
        except RayflError:
            raise
        except Exception as error:  # each class has its own way to say that files are missing or damaged
            said = " ".join(str(error).split()) or type(error).__name__
            raise DataError(f"{where}: its {part} samples cannot be read, and rayfl downloads none ({said})") from error
    digest = hashlib.sha256()
    for x, y in parts.values():
        digest.update(x.tobytes() + np.ascontiguousarray(y).tobytes())
    digests = ((f"{where}: the sha256 of its samples", digest.hexdigest()),)
    return dataset_of_arrays(f"torchvision {dataset}", parts, Provenance("files", where, digests))


def _which(target: type, part: str, given: dict[str, Any], name: str) -> dict[str, Any]:
    """The argument that chooses between training and test samples."""
    # EMNIST hands `train` on to its base class
    inits = [inspect.signature(base) for base in target.__mro__ if base is not object]
    parameters = {name for init in inits for name in init.parameters}
    if "train" in parameters:
        return {"train": part == "train"}
    if "split" in parameters and "split" not in given:
        return {"split": part}
    raise ScenarioError(
        f"data.options.dataset: {name} has no argument train or split that tells training and test samples apart; "
        "write a source of your own"
    )


def _arrays(samples: Any, size: int | None, where: str) -> tuple[np.ndarray, np.ndarray]:
    images, targets = [], []
    for row in range(len(samples)):
        sample = samples[row]
        if not (isinstance(sample, tuple) and len(sample) == 2):
            raise DataError(f"{where}: a sample is no pair of an image and its target; write a source of your own")
        images.append(_pixels(sample[0], size, where))
        targets.append(_target(sample[1], size))
    for kind, values in (("images", images), ("targets", targets)):
        shapes = {np.shape(value) for value in values}
        if len(shapes) > 1:
            raise DataError(f"{where}: {kind} differ in size ({sorted(shapes)[:2]}); set data.options.size")
    return np.stack(images), np.asarray(targets)


def _pixels(image: Any, size: int | None, where: str) -> np.ndarray:
    if not isinstance(image, Image.Image):
        raise DataError(f"{where}: a sample is of type {type(image).__name__}, no image; write a source of your own")
    image = image if image.mode in ("L", "RGB") else image.convert("RGB")
    pixels = np.asarray(image if size is None else _square(image, size, Image.Resampling.BILINEAR))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _target(target: Any, size: int | None) -> Any:
    if isinstance(target, Image.Image):  # a map of classes: its values must not be mixed
        return np.asarray(target if size is None else _square(target, size, Image.Resampling.NEAREST))
    return target.numpy() if isinstance(target, torch.Tensor) else target


def _square(image: Image.Image, size: int, resampling: Image.Resampling) -> Image.Image:
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.resize((size, size), resampling, box=(left, top, left + side, top + side))

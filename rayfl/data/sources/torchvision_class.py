"""Any data set class of torchvision, by name, on files that already exist."""

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
from rayfl.data.formats.image_decoding import in_eight_bits
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
    """Loads a class of `torchvision.datasets` that separates training and test samples by `train` or `split`.

    Args:
        dataset: Name of the class: "CIFAR10", "SVHN", "EMNIST".
        root: Folder of its files, by default the data folder. Nothing is downloaded.
        size: Crops images to the central square and scales them to size x size pixels; required if their sizes differ.
        arguments: Other arguments of the class, such as `{ split = "letters" }` for EMNIST.

    Returns:
        Images [n, height, width, channels] uint8, and the targets: classes, vectors, or maps of images.

    Raises:
        ScenarioError: The class or an argument is unknown, or its training and test samples cannot be separated.
        DataError: Files are missing or damaged, images differ in size, or samples are not images.
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
        except Exception as error:  # classes raise different errors for missing or damaged files
            said = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"{where}: {part} samples cannot be read, and rayfl does not download them ({said})"
            ) from error
    digest = hashlib.sha256()
    for x, y in parts.values():
        digest.update(x.tobytes() + np.ascontiguousarray(y).tobytes())
    digests = ((f"{where}: the sha256 of its samples", digest.hexdigest()),)
    return dataset_of_arrays(f"torchvision {dataset}", parts, Provenance("files", where, digests))


def _which(target: type, part: str, given: dict[str, Any], name: str) -> dict[str, Any]:
    """The argument that selects training or test samples."""
    # EMNIST passes `train` to its base class
    inits = [inspect.signature(base) for base in target.__mro__ if base is not object]
    parameters = {name for init in inits for name in init.parameters}
    if "train" in parameters:
        return {"train": part == "train"}
    if "split" in parameters and "split" not in given:
        return {"split": part}
    raise ScenarioError(
        f"data.options.dataset: {name} has no argument train or split that separates training and test samples; "
        "write your own source"
    )


def _arrays(samples: Any, size: int | None, where: str) -> tuple[np.ndarray, np.ndarray]:
    images, targets = [], []
    for row in range(len(samples)):
        sample = samples[row]
        if not (isinstance(sample, tuple) and len(sample) == 2):
            raise DataError(f"{where}: a sample is not a pair (image, target); write your own source")
        images.append(_pixels(sample[0], size, where))
        targets.append(_target(sample[1], size))
    for kind, values in (("images", images), ("targets", targets)):
        shapes = {np.shape(value) for value in values}
        if len(shapes) > 1:
            raise DataError(f"{where}: {kind} differ in size ({sorted(shapes)[:2]}); set data.options.size")
    return np.stack(images), np.asarray(targets)


def _pixels(image: Any, size: int | None, where: str) -> np.ndarray:
    if not isinstance(image, Image.Image):
        raise DataError(f"{where}: a sample is of type {type(image).__name__}, not an image; write your own source")
    image = in_eight_bits(image, "L" if image.mode == "L" else "RGB", f"{where}: a sample")
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

"""Data sets of other libraries: in the format of Hugging Face's `datasets`, or any data set class of torchvision.

Those of Hugging Face are saved to disk or from the hub. Requires rayfl[huggingface]. Input and label columns that are
not named are found by their features. Those of torchvision are found by name, on files that already exist.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from rayfl.config.registry import check_options, nearest
from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.files import FileDigest, digest_of
from rayfl.data.formats.columns import Columns, InputColumns, LabelColumns, Name, Share, columns_in, samples_of
from rayfl.data.formats.image_files import in_eight_bits
from rayfl.data.formats.parquet import BYTES_AT_ONCE
from rayfl.errors import DataError, RayflError, ScenarioError


def label_column(features: Mapping[str, Any], taken: Iterable[str | None], where: str) -> str:
    """Finds the only column of classes (`ClassLabel`).

    Args:
        features: The features of all columns.
        taken: Columns with other roles; None entries are ignored.
        where: The data set, for messages.

    Raises:
        DataError: There is no such column, or several; names them.
    """
    from datasets import ClassLabel

    return _only(features, taken, lambda feature: isinstance(feature, ClassLabel), "label", "a ClassLabel", where)


def input_column(features: Mapping[str, Any], taken: Iterable[str | None], where: str) -> str:
    """Finds the only column of images (`Image`), arrays or lists of numbers; see `label_column`."""
    return _only(features, taken, _holds_inputs, "inputs", "an image, or an array or list of numbers", where)


def _only(
    features: Mapping[str, Any],
    taken: Iterable[str | None],
    fits: Callable[[Any], bool],
    option: str,
    kind: str,
    where: str,
) -> str:
    free = [name for name in features if name not in set(taken)]
    matches = [name for name in free if fits(features[name])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise DataError(f"{where}: {', '.join(matches)} are each {kind}; name one in data.options.{option}")
    raise DataError(
        f"{where}: no column is {kind}; name one in data.options.{option} (there are {', '.join(free) or 'none'})"
    )


def _holds_inputs(feature: Any) -> bool:
    from datasets import Array2D, Array3D, Array4D, Array5D, Image

    return isinstance(feature, Image | Array2D | Array3D | Array4D | Array5D) or _is_list_of_numbers(feature)


def _is_list_of_numbers(feature: Any) -> bool:
    from datasets import LargeList, List, Value

    if not isinstance(feature, List | LargeList):
        return False
    inner = feature.feature
    numbers = isinstance(inner, Value) and inner.dtype.startswith(("int", "uint", "float", "bool"))
    return numbers or _is_list_of_numbers(inner)


_NO_TESTS: Mapping[str, str] = MappingProxyType({})


def load_hugging_face(
    source: Literal["auto", "files", "generated"],
    seed: int,
    inputs: InputColumns | None = None,
    label: LabelColumns | None = None,
    path: Path | None = None,
    hub: Name | None = None,
    config: Name | None = None,
    revision: Name | None = None,
    train: Name = "train",
    test: Name = "test",
    tests: Mapping[str, Name] = _NO_TESTS,
    owner: Name | None = None,
    test_share: Share | None = None,
) -> Dataset:
    """Loads a data set that was saved with `save_to_disk`, or one from the hub.

    Args:
        inputs: A column of images of one size, numbers or lists; several numeric columns, joined to a vector; or a
            table from arguments of the network's `forward` to columns. By default, the only column of images, arrays or
            lists of numbers.
        label: One column, or several numeric ones. Strings and single integers are classes. By default, the only
            column of classes (`ClassLabel`).
        path: Folder written by `save_to_disk`.
        hub: Name on the hub, instead of `path`; downloaded if it is not in the cache of `datasets`.
        config: Configuration of a data set on the hub that has several.
        revision: Revision of a data set on the hub; give a commit hash so that later runs use the same data.
        train: The split with the training samples.
        test: The split with the test samples.
        tests: Additional test sets, from their names to splits.
        owner: The column with the owner of each sample, its natural client, for training and testing.
        test_share: For data without splits, the share of rows drawn for testing with the seed of the data; 0.1 by
            default.

    Raises:
        ScenarioError: `datasets` is not installed, not exactly one of `path` and `hub` is given, or an option has no
            effect.
        DataError: A folder, split or column does not exist, data cannot be read, or values are not numeric.
    """
    if source == "generated":
        raise ScenarioError("data.source: 'huggingface' has nothing to generate; choose 'auto' or 'files'")
    if (path is None) == (hub is None):
        raise ScenarioError("data.options: huggingface needs either path, a folder, or hub, a name on the hub")
    if path is not None and (config or revision):
        raise ScenarioError("data.options: config and revision are for data from the hub; leave them out with path")
    where = str(path) if path is not None else f"hub data set {hub}"
    loaded = _found(path, hub, config, revision, where)
    if isinstance(loaded, dict):
        if test_share is not None:
            raise ScenarioError(f"data.options.test_share: {where} has splits; leave it out")
        parts = {name: _split(loaded, split, where) for name, split in {"train": train, "test": test, **tests}.items()}
    else:
        if tests or (train, test) != ("train", "test"):
            raise ScenarioError(f"data.options: {where} has no splits; leave out train, test and tests")
        parts = {"": loaded}
    features = next(iter(parts.values())).features
    label = label or label_column(features, [*columns_in(inputs), owner], where)
    inputs = inputs or input_column(features, [*columns_in(label), owner], where)
    columns = Columns(inputs, label, owner, _SPLIT if isinstance(loaded, dict) else None, test_share)
    tables = [_table(part, name, owner) for name, part in parts.items()]
    table = pa.concat_tables(tables)
    rows = len(table)
    read = samples_of(
        table.schema, table.to_batches(BYTES_AT_ONCE * rows // max(1, table.nbytes) or 1), rows, columns, seed, where
    )
    provenance = Provenance("files", f"{rows} rows of {where}", _digests(parts.values()))
    dataset = dataset_of_arrays(f"huggingface {path.name if path else hub}", read, provenance)
    names = getattr(features.get(label), "names", None) if isinstance(label, str) else None
    return replace(dataset, num_classes=len(names)) if names and dataset.num_classes else dataset


_SPLIT = "__split"
"""The column that marks splits while they are read as one table."""


def _found(folder: Path | None, hub: str | None, config: str | None, revision: str | None, where: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ScenarioError("data.name: 'huggingface' needs datasets; pip install 'rayfl[huggingface]'") from error
    try:
        if folder is not None:
            return datasets.load_from_disk(str(folder))
        return datasets.load_dataset(hub, config, revision=revision)
    except Exception as error:  # its exceptions and network errors have no common base class
        cause = " ".join(str(error).split())
        raise DataError(f"{where}: cannot be loaded by datasets ({type(error).__name__}: {cause})") from error


def _split(splits: Mapping[str, Any], split: str, where: str) -> Any:
    if split not in splits:
        raise DataError(f"{where}: has no split '{split}'; {nearest(split, splits)}")
    return splits[split]


def _table(part: Any, split: str, owner: str | None) -> pa.Table:
    """The rows of a split in order; owners that are classes become class names."""
    table = part.with_format("arrow")[:].replace_schema_metadata(None)
    if names := getattr(part.features.get(owner), "names", None):
        place, numbers = table.column_names.index(owner), table[owner].combine_chunks().cast(pa.int32())
        table = table.set_column(place, owner, pa.DictionaryArray.from_arrays(numbers, names).cast(pa.string()))
    return table.append_column(_SPLIT, pa.array([split] * len(table), pa.string()))


def _digests(parts: Iterable[Any]) -> tuple[FileDigest, ...]:
    files = dict.fromkeys(cache["filename"] for part in parts for cache in part.cache_files)
    return tuple(digest_of(Path(file)) for file in files)


def load_torchvision(
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
    target, user_arguments = getattr(datasets, dataset), dict(arguments or {})
    folder = data_dir if root is None else root
    where = f"torchvision's {dataset} in {folder}"
    parts = {}
    for part in ("train", "test"):
        provided = {"root": str(folder), **_which(target, part, user_arguments, dataset)}
        check_options(target, user_arguments, provided, "data.options.arguments")
        try:
            parts[part] = _arrays(target(**provided, **user_arguments), size, f"{where}, {part}")
        except RayflError:
            raise
        except Exception as error:  # classes raise different errors for missing or damaged files
            cause = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"{where}: {part} samples cannot be read, and rayfl does not download them ({cause})"
            ) from error
    digest = hashlib.sha256()
    for x, y in parts.values():
        digest.update(x.tobytes() + np.ascontiguousarray(y).tobytes())
    digests = ((f"{where}: the sha256 of its samples", digest.hexdigest()),)
    return dataset_of_arrays(f"torchvision {dataset}", parts, Provenance("files", where, digests))


def _which(target: type, part: str, arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """The argument that selects training or test samples."""
    # EMNIST passes `train` to its base class
    inits = [inspect.signature(base) for base in target.__mro__ if base is not object]
    parameters = {name for init in inits for name in init.parameters}
    if "train" in parameters:
        return {"train": part == "train"}
    if "split" in parameters and "split" not in arguments:
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

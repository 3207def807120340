"""Data sets in the format of Hugging Face's `datasets`: saved to disk or from the hub. Requires rayfl[huggingface]."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.columns import Columns, InputColumns, LabelColumns, Name, Share, samples_of
from rayfl.data.formats.digested import FileDigest
from rayfl.data.formats.features import columns_in, input_column, label_column
from rayfl.errors import DataError, ScenarioError
from rayfl.registry import nearest

_NO_TESTS: Mapping[str, str] = MappingProxyType({})


def load(
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
    found = _found(path, hub, config, revision, where)
    if isinstance(found, dict):
        if test_share is not None:
            raise ScenarioError(f"data.options.test_share: {where} has splits; leave it out")
        parts = {name: _split(found, split, where) for name, split in {"train": train, "test": test, **tests}.items()}
    else:
        if tests or (train, test) != ("train", "test"):
            raise ScenarioError(f"data.options: {where} has no splits; leave out train, test and tests")
        parts = {"": found}
    features = next(iter(parts.values())).features
    label = label or label_column(features, [*columns_in(inputs), owner], where)
    inputs = inputs or input_column(features, [*columns_in(label), owner], where)
    columns = Columns(inputs, label, owner, _SPLIT if isinstance(found, dict) else None, test_share)
    tables = [_table(part, name, owner) for name, part in parts.items()]
    read = samples_of(pa.concat_tables(tables), columns, seed, where)
    rows = sum(len(table) for table in tables)
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
        said = " ".join(str(error).split())
        raise DataError(f"{where}: cannot be loaded by datasets ({type(error).__name__}: {said})") from error


def _split(found: Mapping[str, Any], split: str, where: str) -> Any:
    if split not in found:
        raise DataError(f"{where}: has no split '{split}'; {nearest(split, found)}")
    return found[split]


def _table(part: Any, split: str, owner: str | None) -> pa.Table:
    """The rows of a split in order; owners that are classes become class names."""
    table = part.with_format("arrow")[:].replace_schema_metadata(None)
    if names := getattr(part.features.get(owner), "names", None):
        place, numbers = table.column_names.index(owner), table[owner].combine_chunks().cast(pa.int32())
        table = table.set_column(place, owner, pa.DictionaryArray.from_arrays(numbers, names).cast(pa.string()))
    return table.append_column(_SPLIT, pa.array([split] * len(table), pa.string()))


def _digests(parts: Iterable[Any]) -> tuple[FileDigest, ...]:
    digests = []
    for file in dict.fromkeys(cache["filename"] for part in parts for cache in part.cache_files):
        with Path(file).open("rb") as content:
            digests.append((str(file), hashlib.file_digest(content, "sha256").hexdigest()))
    return tuple(digests)

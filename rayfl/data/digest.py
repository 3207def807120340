"""The digest that identifies a data set, independent of its folder."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from rayfl.data.dataset import Dataset, Samples, Shards
from rayfl.data.inputs import Array, Pieces, Ragged, TextWindows, named_parts
from rayfl.data.rendered import Rendered
from rayfl.data.torch_datasets.rows import TorchPieces, TorchRows

_BYTES_AT_ONCE = 2**24


def data_digest(dataset: Dataset) -> str:
    """SHA-256 in hexadecimal: of the digests of the files, or of all samples if no files were read.

    Rendered inputs contribute their recipe; a PyTorch Dataset contributes some items spread over all of it.
    """
    digest = hashlib.sha256()
    for _, of_file in dataset.provenance.files:
        digest.update(of_file.encode())
    if not dataset.provenance.files:
        for part, samples in dataset.parts.items():
            digest.update(part.encode())
            _add_samples(digest, samples)
        if natural := dataset.natural:
            digest.update("\n".join(natural.names).encode())
            for shards in (natural.train, natural.test):
                _add_shards(digest, shards)
    return digest.hexdigest()


def _add_samples(digest: hashlib._Hash, samples: Samples) -> None:
    for name, part in named_parts(samples.x).items():
        digest.update(name.encode())
        match part:
            case TextWindows():
                arrays: tuple[Array, ...] = (part.text, part.starts, np.array(part.length))
            case Ragged():
                arrays = (part.values, part.starts, part.lengths)
            case Rendered():
                arrays = ()
                digest.update(json.dumps(dict(part.recipe), sort_keys=True).encode())
            case TorchRows() | TorchPieces():
                arrays = (part.rows,)
                digest.update(part.field.tried.encode())
            case _:
                assert not isinstance(part, Pieces)
                arrays = (part,)
        for array in arrays:
            _add(digest, array)
    _add(digest, samples.y)


def _add_shards(digest: hashlib._Hash, shards: Shards | None) -> None:
    if shards is not None:
        _add(digest, shards.rows)
        _add(digest, shards.offsets)


def _add(digest: hashlib._Hash, array: Array) -> None:
    """Adds shape, dtype and content, some rows at a time because they may be on disk."""
    digest.update(f"{array.dtype} {array.shape}".encode())
    if not array.ndim:
        digest.update(np.asarray(array).tobytes())
        return
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    rows = max(1, _BYTES_AT_ONCE // max(1, row_bytes))
    for first in range(0, len(array), rows):
        digest.update(np.ascontiguousarray(array[first : first + rows]).data)

"""Image files of one data set, decoded once to an array of one size and kept in the cache folder."""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image, ImageOps

from rayfl.data.formats.parquet import fixed_bytes, fixed_bytes_column, read_table, write_table
from rayfl.errors import DataError

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decoded:
    """images: [n, size, size, 3] uint8, in the order of the files; sha256: of all files, hexadecimal."""

    images: np.ndarray
    sha256: str


def image_files(folder: Path) -> list[Path]:
    """The image files of a folder, by name; other files are passed over."""
    return sorted(file for file in folder.glob("[!.]*") if file.suffix.lower() in _SUFFIXES)


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, by name, without hidden ones."""
    return sorted(entry for entry in folder.glob("[!.]*") if entry.is_dir())


def decoded(root: Path, files: Sequence[Path], size: int, cache_dir: Path, name: str) -> Decoded:
    """Images of `files`, all under `root`, as RGB of size x size: cut to a square in the middle, then scaled.

    Kept as `cache_dir`/`name`-....parquet, under a digest of the files' names, sizes and times of change, and of the
    size wanted; a damaged cache file is made again. Colours of 16 bits per channel keep their upper 8.

    Raises:
        DataError: A file that is missing, truncated, corrupt, in another format than its kinds of names stand for,
            too large, or of gray levels in more than 8 bits (named), or a cache folder that cannot be written to.
    """
    cached = cache_dir / f"{name}-{_listing(root, files, size)}.parquet"
    schema = pa.schema([("image", pa.binary(size * size * 3)), ("sha256", pa.binary(32))])
    if cached.exists():
        try:
            table = read_table(cached, schema)
            return _all(fixed_bytes(table["image"]).reshape(-1, size, size, 3), fixed_bytes(table["sha256"]))
        except DataError as error:
            _log.warning("decoding again what was in the cache: %s", error)
    images = np.empty((len(files), size, size, 3), np.uint8)
    digests = np.empty((len(files), 32), np.uint8)

    def read(row: int) -> None:
        images[row], digest = _decode(files[row], size)
        digests[row] = np.frombuffer(digest, np.uint8)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(read, range(len(files))):
            pass
    columns = [fixed_bytes_column(images), fixed_bytes_column(digests)]
    write_table(pa.Table.from_arrays(columns, schema=schema), cached)
    return _all(images, digests)


def _all(images: np.ndarray, digests: np.ndarray) -> Decoded:
    return Decoded(images, hashlib.sha256(digests.tobytes()).hexdigest())


def _listing(root: Path, files: Sequence[Path], size: int) -> str:
    digest = hashlib.sha256(f"{size} {version('pillow')}".encode())
    for file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror or error})") from error
        digest.update(f"\n{file.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _decode(file: Path, size: int) -> tuple[np.ndarray, bytes]:
    try:
        content = file.read_bytes()
        image: Image.Image = Image.open(io.BytesIO(content), formats=_FORMATS)
        image.load()
    except Image.DecompressionBombError as error:
        raise DataError(f"{file}: is too large an image, make it smaller ({error})") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise DataError(f"{file}: cannot be read as an image, truncated or corrupt? ({error})") from error
    if image.mode in ("F", "I") or image.mode.startswith("I;16"):
        raise DataError(f"{file}: has pixels of mode {image.mode}; convert it to 8 bits per channel")
    # A palette with transparency goes through RGBA, as Pillow asks.
    rgb = (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
    if rgb.size != (size, size):
        rgb = ImageOps.fit(rgb, (size, size), Image.Resampling.BILINEAR)
    return np.asarray(rgb), hashlib.sha256(content).digest()

"""Image files of a data set: decoded to one size into the cache folder, or checked and left on disk.

Pixels are decoded with their digests, at once or whenever they are accessed; images that stay in their files are for
data larger than memory. Also the data sets made of them: images with classes and, optionally, domains, whose test
images are drawn.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from PIL import Image, ImageOps

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.formats.parquet import fixed_bytes, fixed_bytes_column, read_table, write_table
from rayfl.data.formats.scratch import is_on_disk
from rayfl.data.inputs import Array, AsArray, taken
from rayfl.errors import DataError
from rayfl.files import reading

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def read_image(file: Path, formats: tuple[str, ...] = FORMATS) -> tuple[Image.Image, bytes]:
    """The image of a file, and the SHA-256 of the file.

    Raises:
        DataError: The file is missing, truncated, corrupt, in another format, or too large; names it.
    """
    kind = f"a {formats[0]}" if len(formats) == 1 else "an"
    with reading(file, f"as {kind} image"):
        content = file.read_bytes()
        try:
            image: Image.Image = Image.open(io.BytesIO(content), formats=formats)
            image.load()
        except Image.DecompressionBombError as error:
            raise DataError(f"{file}: the image is too large; make it smaller ({error})") from error
    return image, hashlib.sha256(content).digest()


def in_eight_bits(image: Image.Image, mode: Literal["L", "RGB"], which: str) -> Image.Image:
    """An image in a mode of 8 bits per channel.

    Args:
        image: The image.
        mode: Grey or colours.
        which: The image, for the error: "scan.png:".

    Raises:
        DataError: Its grey levels are not whole numbers from 0 to 255, to which Pillow would clip or round them, or are
            declared as 16 bits, or its colours are Lab.
    """
    if image.mode == "LAB":
        raise DataError(f"{which} has pixels of mode LAB; convert it to RGB")
    if image.mode.startswith("I;16"):
        raise DataError(
            f"{which} has pixels of mode {image.mode}; convert it to 8 bits per channel, and scale its pixels (// 257 "
            "from 16 bits)"
        )
    if image.mode in ("I", "F"):
        _check_eight_bits(np.asarray(image), f"{which} has pixels of mode {image.mode}")
        image = image.convert("L")
    if image.mode == mode:
        return image
    # Pillow requires converting a palette with transparency to RGBA first.
    return (image.convert("RGBA") if image.mode in ("P", "PA") else image).convert(mode)


def _check_eight_bits(levels: np.ndarray, what: str) -> None:
    wrong = levels[~((levels >= 0) & (levels <= 255) & (levels == np.round(levels)))]
    if wrong.size:
        raise DataError(
            f"{what} with the value {wrong[0]:g}; convert it to 8 bits per channel, and scale its pixels to whole "
            "numbers from 0 to 255"
        )


def read_square(file: Path, size: int) -> tuple[np.ndarray, bytes]:
    """RGB pixels [size, size, 3] uint8 of an image file, cropped to the central square and scaled, and its SHA-256.

    Colours of 16 bits per channel keep their upper 8 bits.

    Raises:
        DataError: As for `read_image` and `in_eight_bits`.
    """
    image, digest = read_image(file)
    rgb = in_eight_bits(image, "RGB", f"{file}:")
    if rgb.size != (size, size):
        rgb = ImageOps.fit(rgb, (size, size), Image.Resampling.BILINEAR)
    return np.asarray(rgb), digest


Read = Callable[[Path], tuple[np.ndarray, bytes]]
"""Reads the pixels [height, width, channels] uint8 of an image file and the SHA-256 of the file."""


@dataclass(frozen=True)
class ImageRows(AsArray):
    """Images [n, height, width, channels] uint8, decoded when they are accessed.

    Every process reads the files itself, so they must have the same paths on every node.

    Attributes:
        root: The folder that holds the files.
        names: [n] bytes, the paths of the files below it.
        sha256: [n, 32] uint8, SHA-256 of the files when they were checked; a file that has changed since is an error.
        read: Reads one file.
        shape: (n, height, width, channels).
    """

    root: str
    names: np.ndarray
    sha256: np.ndarray
    read: Read
    shape: tuple[int, ...]

    dtype = np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """The images of some rows, [rows, height, width, channels].

        Raises:
            DataError: A file is missing or has changed.
        """
        names, expected = self.names[rows], self.sha256[rows]
        images = np.empty((len(names), *self.shape[1:]), np.uint8)
        for row, name in enumerate(names.tolist()):
            file = Path(self.root, os.fsdecode(name))
            pixels, digest = self.read(file)
            if digest != expected[row].tobytes():
                raise DataError(f"{file}: has changed since the data was checked; start again")
            images[row] = pixels
        return images

    def take(self, rows: np.ndarray) -> ImageRows:
        """Some of the images, without reading them."""
        names = self.names[rows]
        return replace(self, names=names, sha256=self.sha256[rows], shape=(len(names), *self.shape[1:]))

    @staticmethod
    def of(root: Path, files: Sequence[Path], sha256: np.ndarray, read: Read, image: tuple[int, ...]) -> ImageRows:
        """Builds them from files under `root` whose images all have the shape `image`."""
        names = np.array([os.fsencode(file.relative_to(root)) for file in files])
        return ImageRows(str(root), names, sha256, read, (len(files), *image))


_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

Keep = Literal["memory", "disk"]
"""Where images are kept: decoded in memory, or on disk and decoded for every batch."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decoded:
    """`images` [n, size, size, 3] uint8 in file order; `sha256` of the SHA-256 of all files, hexadecimal."""

    images: np.ndarray | ImageRows
    sha256: str


def image_files(folder: Path) -> list[Path]:
    """The image files of a folder, sorted by name; other files are ignored."""
    return sorted(file for file in folder.glob("[!.]*") if file.suffix.lower() in _SUFFIXES)


def subfolders(folder: Path) -> list[Path]:
    """The subfolders of a folder, sorted by name, without hidden ones."""
    return sorted(entry for entry in folder.glob("[!.]*") if entry.is_dir())


def decoded(root: Path, files: Sequence[Path], size: int, cache_dir: Path, name: str, keep: Keep = "memory") -> Decoded:
    """Images of `files`, all under `root`, as RGB of size x size: cropped to the central square, then scaled.

    All files are decoded the first time, so damaged ones are found early. The name of the cache file contains a digest
    of file names, file sizes, modification times and the image size: `name`-....parquet holds the pixels and the
    SHA-256 of the files; `name`-...-checked.parquet holds only the SHA-256, if images stay on disk, as they always do
    for data that may be larger than memory (`scratch.is_on_disk`). A damaged cache file is regenerated.

    Raises:
        DataError: A file is missing, truncated, corrupt, in an unsupported format, too large, or has grey levels of
            more than 8 bits (named), or the cache folder cannot be written to.
    """
    read = partial(read_square, size=size)
    in_memory, listing = keep == "memory" and not is_on_disk(), _listing(root, files, size)
    cached = cache_dir / f"{name}-{listing}{'' if in_memory else '-checked'}.parquet"
    kinds = {"image": pa.binary(size * size * 3), "sha256": pa.binary(32)}
    schema = pa.schema([(key, kind) for key, kind in kinds.items() if in_memory or key != "image"])
    if cached.exists():
        try:
            table = read_table(cached, schema)
            sha256 = fixed_bytes(table["sha256"])
            if in_memory:
                return _all(fixed_bytes(table["image"]).reshape(-1, size, size, 3), sha256)
            return _all(ImageRows.of(root, files, sha256, read, (size, size, 3)), sha256)
        except DataError as error:
            _log.warning("decoding images again, because the cache file is damaged: %s", error)
    images = np.empty((len(files), size, size, 3), np.uint8) if in_memory else None
    sha256 = _read_all(files, read, images)
    columns = [fixed_bytes_column(column) for column in (images, sha256) if column is not None]
    write_table(pa.Table.from_arrays(columns, schema=schema), cached)
    return _all(ImageRows.of(root, files, sha256, read, (size, size, 3)) if images is None else images, sha256)


def _read_all(files: Sequence[Path], read: Read, images: np.ndarray | None) -> np.ndarray:
    """[n, 32] uint8, the SHA-256 of every file; fills `images` if given."""
    digests = np.empty((len(files), 32), np.uint8)

    def read_one(row: int) -> None:
        pixels, digest = read(files[row])
        digests[row] = np.frombuffer(digest, np.uint8)
        if images is not None:
            images[row] = pixels

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(read_one, range(len(files))):
            pass
    return digests


def _all(images: np.ndarray | ImageRows, sha256: np.ndarray) -> Decoded:
    return Decoded(images, hashlib.sha256(sha256.tobytes()).hexdigest())


def _listing(root: Path, files: Sequence[Path], size: int) -> str:
    digest = hashlib.sha256(f"{size} {version('pillow')}".encode())
    for file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror or error})") from error
        digest.update(f"\n{file.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


TEST_SHARE = 0.1
"""The default share of test images."""


@dataclass(frozen=True)
class ListedImages:
    """Image files with the class and the domain of each ("" if there are no domains)."""

    files: list[Path]
    classes: list[str]
    domains: list[str]


def drawn_for_testing(group: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """[n] bool: draws the rounded share of each group at random; at least one row of two or more, never all.

    Args:
        group: [n] integers, such as one per class and domain.
        share: Between 0 and 1, exclusive.
        rng: Random generator.
    """
    chosen = np.zeros(len(group), bool)
    for number in np.unique(group):
        rows = np.flatnonzero(group == number)
        chosen[rng.permutation(rows)[: min(max(1, round(share * len(rows))), len(rows) - 1)]] = True
    return chosen


def dataset_of_images(
    name: str,
    images: Array,
    label: np.ndarray,
    domain: np.ndarray,
    is_test: np.ndarray,
    num_classes: int,
    domains: Sequence[str],
    provenance: Provenance,
) -> Dataset:
    """Builds a data set of images in their order; domains, if any, are its natural clients.

    Args:
        name: Name of the data set.
        images: [n, height, width, channels] uint8, in memory or on disk.
        label: [n] integers in 0..num_classes-1.
        domain: [n] integers, indices into `domains`.
        is_test: [n] bool.
        num_classes: Number of classes.
        domains: Names of the domains; empty or [""] if there are none.
        provenance: Where the images come from.
    """
    rows = [np.flatnonzero(~is_test), np.flatnonzero(is_test)]
    train, test = (Samples(taken(images, part), label[part].astype(np.int64)) for part in rows)
    natural = None
    if any(domains):
        shards = (Shards.by_owner(domain[part], len(domains)) for part in rows)
        natural = NaturalClients(tuple(domains), *shards)
    return Dataset(name, train, test, num_classes, provenance, natural)

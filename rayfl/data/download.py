"""`python -m rayfl.data.download NAME [--data-dir DIR]`: downloads real data to the data folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from rayfl.data.folders import data_folder
from rayfl.data.formats.written_images import write_prepared
from rayfl.data.prepare import summary
from rayfl.data.sources import femnist_hub
from rayfl.errors import DataError


def download_femnist(data_dir: Path, base_url: str = femnist_hub.HUB) -> Iterator[str]:
    """Downloads FEMNIST, checks its digests and prepares `data_dir`/femnist/femnist.parquet; yields progress messages.

    Raises:
        DataError: No network, a digest differs from the hub's, or the folder cannot be written to.
    """
    written, files = femnist_hub.download(base_url)
    for file in files:
        yield f"checked {femnist_hub.DATASET}/{file.path}, {file.size} bytes, sha256 {file.sha256}"
    yield "split 90 % / 10 % per writer by a fixed random stream, since the source has no split; not the split of LEAF"
    target = data_dir / "femnist" / "femnist.parquet"
    write_prepared(written, target)
    yield f"wrote {summary(written, target)}"


def download_fashion_mnist(data_dir: Path) -> Iterator[str]:
    """Downloads Fashion-MNIST with torchvision, which checks md5 sums, to `data_dir`/fashion-mnist.

    Raises:
        DataError: No network, an md5 sum differs, or the folder cannot be written to.
    """
    # torchvision takes seconds to import; FEMNIST does not need it.
    from torchvision.datasets import FashionMNIST

    root = data_dir / "fashion-mnist"
    try:
        FashionMNIST(str(root), train=True, download=True)
    except (RuntimeError, OSError) as error:
        names = ", ".join(name for name, _ in FashionMNIST.resources)
        raise DataError(
            f"cannot download Fashion-MNIST ({' '.join(str(error).split())}); by hand: put {names} "
            f"into {root / 'FashionMNIST' / 'raw'}"
        ) from error
    yield f"wrote {root / 'FashionMNIST' / 'raw'} (torchvision checked the md5 sums)"


def download_cifar(name: Literal["cifar10", "cifar100"], data_dir: Path) -> Iterator[str]:
    """Downloads the python version of CIFAR with torchvision, which checks its md5 sum, to `data_dir`/`name`.

    Raises:
        DataError: No network, the md5 sum differs, or the folder cannot be written to.
    """
    from torchvision.datasets import CIFAR10, CIFAR100
    from torchvision.datasets.utils import download_and_extract_archive

    its = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    root = data_dir / name
    try:
        # Not the class itself, which would un-pickle the unpacked files.
        download_and_extract_archive(its.url, str(root), filename=its.filename, md5=its.tgz_md5, remove_finished=True)
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"cannot download {name} ({reason}); by hand: unpack {its.filename} into {root}") from error
    yield f"wrote {root / its.base_folder} (torchvision checked the md5 sum)"


_COMMANDS: Mapping[str, Callable[[Path], Iterator[str]]] = {
    "femnist": download_femnist,
    "fashion_mnist": download_fashion_mnist,
    "cifar10": partial(download_cifar, "cifar10"),
    "cifar100": partial(download_cifar, "cifar100"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, 2 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.data.download",
        description="Download real data to the folder that rayfl reads.",
        epilog="example: python -m rayfl.data.download femnist --data-dir data",
    )
    parser.add_argument("data", choices=list(_COMMANDS))
    parser.add_argument("--data-dir", type=Path, default=data_folder(), help="default: $RAYFL_DATA or %(default)s")
    given = parser.parse_args(arguments)
    try:
        for step in _COMMANDS[given.data](given.data_dir):
            print(step)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m rayfl.data.download femnist|fashion_mnist [--data-dir DIR]`: real data into rayfl's folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rayfl.data import femnist_hub
from rayfl.data.folders import data_folder
from rayfl.data.prepare import summary
from rayfl.data.prepared import write_prepared
from rayfl.errors import DataError


def download_femnist(data_dir: Path, base_url: str = femnist_hub.HUB) -> Iterator[str]:
    """Downloads FEMNIST, checks its digests and prepares `data_dir`/femnist/femnist.parquet; yields what it did.

    Raises:
        DataError: no network, other bytes than the hub states, or a folder that cannot be written to.
    """
    written, files = femnist_hub.download(base_url)
    for file in files:
        yield f"checked {femnist_hub.DATASET}/{file.path}, {file.size} bytes, sha256 {file.sha256}"
    yield "split 90 % / 10 % per writer by a fixed random stream, since the source has no split; not LEAF's own split"
    target = data_dir / "femnist" / "femnist.parquet"
    write_prepared(written, target)
    yield f"wrote {summary(written, target)}"


def download_fashion_mnist(data_dir: Path) -> Iterator[str]:
    """Downloads Fashion-MNIST by torchvision, which checks md5 sums, into `data_dir`/fashion-mnist.

    Raises:
        DataError: no network, files whose md5 differs, or a folder that cannot be written to.
    """
    # torchvision takes seconds to import, which nobody who only wants FEMNIST should wait for.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, 2 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.data.download",
        description="Download real data into the folder that rayfl reads.",
        epilog="example: python -m rayfl.data.download femnist --data-dir data",
    )
    parser.add_argument("data", choices=["femnist", "fashion_mnist"])
    parser.add_argument("--data-dir", type=Path, default=data_folder(), help="default: $RAYFL_DATA or %(default)s")
    given = parser.parse_args(arguments)
    steps = download_femnist if given.data == "femnist" else download_fashion_mnist
    try:
        for step in steps(given.data_dir):
            print(step)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m rayfl.data.prepare femnist LEAF_FOLDER OUT.parquet`: converts JSON of LEAF to one Parquet file."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rayfl.data.formats.leaf import WrittenImages, find_leaf, read_leaf, write_prepared
from rayfl.errors import DataError


def prepare_femnist(leaf_folder: Path, out: Path) -> str:
    """Converts FEMNIST as written by LEAF to prepared Parquet; returns a one-line summary.

    Raises:
        DataError: JSON files are missing or damaged, or the file cannot be written; names it.
    """
    folder = find_leaf(leaf_folder)
    if folder is None:
        raise DataError(
            f"{leaf_folder}: has no train/*.json and test/*.json, nor under data/; give the output folder of LEAF's "
            "data/femnist/preprocess.sh"
        )
    written, _ = read_leaf(folder)
    write_prepared(written, out)
    return summary(written, out)


def summary(written: WrittenImages, file: Path) -> str:
    """One line about a prepared file: writers, images and sha256."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    test = int(written.is_test.sum())
    return f"{file}: {len(written.names)} writers, {len(written) - test} train and {test} test images, sha256 {digest}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, 2 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.data.prepare",
        description="Convert downloaded data to files that load fast.",
        epilog="example: python -m rayfl.data.prepare femnist leaf/data/femnist data/femnist/femnist.parquet",
    )
    commands = parser.add_subparsers(dest="data", required=True)
    femnist = commands.add_parser("femnist", help="convert JSON folders of LEAF to prepared Parquet")
    femnist.add_argument(
        "leaf_folder", type=Path, metavar="LEAF_FOLDER", help="contains train/ and test/, or data/ with both"
    )
    femnist.add_argument("out", type=Path, metavar="OUT.parquet")
    options = parser.parse_args(arguments)
    try:
        print("wrote", prepare_femnist(options.leaf_folder, options.out))
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

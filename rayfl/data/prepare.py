"""`python -m rayfl.data.prepare femnist LEAF_FOLDER OUT.parquet`: LEAF's JSON to one prepared Parquet file."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rayfl.data.formats.leaf_json import find_leaf, read_leaf
from rayfl.data.formats.written_images import WrittenImages, write_prepared
from rayfl.errors import DataError


def prepare_femnist(leaf_folder: Path, out: Path) -> str:
    """Writes LEAF's FEMNIST as prepared Parquet; returns one sentence about what was written.

    Raises:
        DataError: No or damaged JSON files, or a file that cannot be written; names it.
    """
    found = find_leaf(leaf_folder)
    if found is None:
        raise DataError(
            f"{leaf_folder}: has no train/*.json and test/*.json, nor under data/; give the folder into which "
            "LEAF's data/femnist/preprocess.sh wrote"
        )
    written, _ = read_leaf(found)
    write_prepared(written, out)
    return summary(written, out)


def summary(written: WrittenImages, file: Path) -> str:
    """One sentence on a prepared file: writers, images and its sha256."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    test = int(written.is_test.sum())
    return f"{file}: {len(written.names)} writers, {len(written) - test} train and {test} test images, sha256 {digest}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, 2 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.data.prepare",
        description="Turn downloaded data into the files that rayfl reads fast.",
        epilog="example: python -m rayfl.data.prepare femnist leaf/data/femnist data/femnist/femnist.parquet",
    )
    commands = parser.add_subparsers(dest="data", required=True)
    femnist = commands.add_parser("femnist", help="LEAF's JSON folders to prepared Parquet")
    femnist.add_argument(
        "leaf_folder", type=Path, metavar="LEAF_FOLDER", help="has train/ and test/, or data/ with them"
    )
    femnist.add_argument("out", type=Path, metavar="OUT.parquet")
    given = parser.parse_args(arguments)
    try:
        print("wrote", prepare_femnist(given.leaf_folder, given.out))
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

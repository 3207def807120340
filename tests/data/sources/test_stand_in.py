"""One rule for all sources: read the files if there are any, else generate a stand-in that says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError

SAMPLES = Samples(np.zeros((2, 3)), np.arange(2))
FOUND = Dataset("found", SAMPLES, SAMPLES, 2, Provenance("files", "two rows"))
MADE = Dataset("made", SAMPLES, SAMPLES, 2, Provenance("generated", "Rows of zeros"))


def chosen(source: Source, found: Dataset | None) -> tuple[Dataset, int]:
    reads = []

    def read() -> Dataset | None:
        reads.append(1)
        return found

    folders = [Path("/a"), Path("/b")]
    get = "get it with a spade"
    return files_or_generated(source, "Gold", "sand", folders, "nuggets", get, read, lambda: MADE), len(reads)


@pytest.mark.parametrize("source", ["auto", "files"])
def test_files_are_read_if_there_are_any(source: Source) -> None:
    assert chosen(source, FOUND) == (FOUND, 1)


def test_generated_never_looks_for_files() -> None:
    dataset, reads = chosen("generated", FOUND)
    assert reads == 0
    assert dataset.provenance.source == "generated"
    assert dataset.provenance.description == (
        "Stand-in for Gold (generated sand), not real data: data.source is 'generated'; "
        "leave it out to use real files. Rows of zeros"
    )


def test_without_files_the_stand_in_says_where_rayfl_looked() -> None:
    dataset, _ = chosen("auto", None)
    assert dataset.provenance.description == (
        "Stand-in for Gold (generated sand), not real data: no files in /a; "
        "get the real data with a spade. Rows of zeros"
    )


def test_files_raises_without_files() -> None:
    with pytest.raises(DataError) as raised:
        chosen("files", None)
    assert str(raised.value) == "Gold not found: looked in /a and /b for nuggets; get it with a spade"

"""Reads a data set from its files, or generates a stand-in that says so.

More generated clients than this machine has memory for are rejected before the first is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import psutil

from rayfl.data.dataset import Dataset, Provenance
from rayfl.errors import DataError, ScenarioError

Source = Literal["auto", "files", "generated"]
"""`auto` reads the files if it finds any and otherwise generates; `files` reads them or fails; `generated` never looks
for files."""

STAND_IN = "Stand-in for"
"""How the description of a stand-in begins."""

GENERATED_DATA = "Generated data, not real data"
"""Marks results on data that is not real."""


def files_or_generated(
    source: Source,
    title: str,
    kind: str,
    folders: Sequence[Path],
    looked_for: str,
    get: str,
    read: Callable[[], Dataset | None],
    generate: Callable[[], Dataset],
) -> Dataset:
    """Reads a data set, or generates a stand-in for it.

    Args:
        source: The value of `data.source`.
        title: Name of the data set in messages.
        kind: What is generated instead: "handwriting".
        folders: Where `read` looks.
        looked_for: The files that it looks for, for the error message.
        get: How to get the files: "get it with ...".
        read: Reads the files; returns None if there are none. Damaged files are an error, never a reason to generate.
        generate: Makes the stand-in; its provenance describes it in one sentence.

    Returns:
        The data from the files, or a stand-in whose provenance says what it replaces, why, and how to get the real
        data.

    Raises:
        DataError: `source` is "files" and there are none, or `read` fails.
    """
    real_data = read() if source != "generated" else None
    if real_data is not None:
        return real_data
    if source == "files":
        places = " and ".join(str(folder) for folder in folders)
        raise DataError(f"{title} not found: looked in {places} for {looked_for}; {get}")
    why = "data.source is 'generated'" if source == "generated" else f"no files in {folders[0]}"
    stand_in = generate()
    remedy = get.replace("get it", "get the real data")
    if source == "generated":
        remedy = "leave it out to use real files"
    notice = f"{STAND_IN} {title} (generated {kind}), not real data: {why}; {remedy}"
    description = f"{notice}. {stand_in.provenance.description}"
    return replace(stand_in, provenance=Provenance("generated", description, notice=notice))


def check_memory(clients: int, bytes_each: int) -> None:
    """Checks that the samples of generated clients fit into memory.

    Args:
        clients: Number of clients.
        bytes_each: Mean size of a client's samples.

    Raises:
        ScenarioError: They do not.
    """
    limit = machine_bytes()
    if clients * bytes_each > limit:
        raise ScenarioError(
            f"data.clients: the samples of {clients:,} generated clients take {clients * bytes_each / 2**30:,.0f} GB, "
            f"but this machine has {limit / 2**30:,.0f} GB; choose at most {limit // bytes_each:,}"
        )


def machine_bytes() -> int:
    """Physical memory of this machine."""
    return int(psutil.virtual_memory().total)

"""Which data a source returns: its files, or generated data that stands in for them and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rayfl.data.dataset import Dataset, Provenance
from rayfl.errors import DataError

Source = Literal["auto", "files", "generated"]
"""`auto` reads the files where there are any and otherwise generates; `files` reads them or fails; `generated` never
looks for files."""


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
    """Reads a data set, or generates what stands in for it.

    Args:
        source: What the scenario asks for.
        title: Name of the data set, for people.
        kind: What the stand-in is: "GENERATED HANDWRITING".
        folders: Where `read` looks.
        looked_for: The files that it looks for, for the message that there are none.
        get: How to get the files: "get it with ...".
        read: Reads the files; None where there are none. Damaged ones are an error, never a reason to generate.
        generate: Makes the stand-in; its provenance describes it in a sentence.

    Returns:
        What was read; or what was generated, and its provenance says for what it stands in, why, and how to get the
        real data.

    Raises:
        DataError: There are no files and `source` is "files", or whatever `read` raises.
    """
    found = read() if source != "generated" else None
    if found is not None:
        return found
    if source == "files":
        places = " and ".join(str(folder) for folder in folders)
        raise DataError(f"{title} is not there: looked in {places} for {looked_for}; {get}")
    why = "as asked" if source == "generated" else f"no files in {folders[0]}"
    stand_in = generate()
    remedy = get.replace("get it", "get the real data")
    description = f"NOT {title} but {kind} standing in for it ({why}); {remedy}. {stand_in.provenance.description}"
    return replace(stand_in, provenance=Provenance("generated", description))

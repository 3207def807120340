"""Where a source of data looks for files, asked of the source itself, with a data folder that is not there."""

from __future__ import annotations

import inspect
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rayfl.errors import DataError

SHOWN = "DATA"
"""What stands for the data folder."""


def source_facts(name: str, target: Any) -> list[str]:
    """What the source says if it is told to read files where there are none.

    Sources that take a path of yours, or always generate, say nothing.
    """
    parameters = inspect.signature(target).parameters
    required = {name for name, found in parameters.items() if found.default is inspect.Parameter.empty}
    if "data_dir" not in parameters or required - {"source", "data_dir", "cache_dir", "seed", "clients"}:
        return []
    with TemporaryDirectory() as folder:
        data, cache = Path(folder, "data"), Path(folder, "cache")
        given = {"source": "files", "data_dir": data, "cache_dir": cache, "seed": 0, "clients": None}
        try:
            target(**{name: value for name, value in given.items() if name in parameters})
        except DataError as error:
            said = str(error).replace(str(data), SHOWN)
            where = f'Without files, and with `data.source = "files"` (`{SHOWN}` is the data folder):'
            return [f"{where}\n\n```text\n{said}\n```"]
    raise AssertionError(f"source '{name}' found files in an empty folder")

"""Where data sources look for files, from their own errors with a missing data folder."""

from __future__ import annotations

import inspect
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rayfl.errors import DataError

SHOWN = "DATA"
"""Placeholder for the data folder."""


def source_facts(name: str, target: Any) -> list[str]:
    """Returns the error of a source that has to read missing files.

    Returns nothing for sources that take a path, or that always generate data.
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

"""Passwords in URIs, which must not reach what a run prints and records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rayfl.errors import ScenarioError

_IN_URI = re.compile(r"(?<=://)[^\s/?#@]*:[^\s/?#@]+(?=@)")


def without_passwords(text: str) -> str:
    """A text in which `…` replaces user and password of every URI."""
    return _IN_URI.sub("…", text)


def check_no_passwords(tables: Mapping[str, Any]) -> None:
    """Checks the tables of a scenario or grid.

    Raises:
        ScenarioError: A key has a URI with a password; names the key, and where to give the password instead.
    """
    if key := _key_with_password(tables, ""):
        raise ScenarioError(
            f"{key}: has a URI with a password, but scenarios are printed and recorded: leave out `user:password@` and "
            "give it, also when the run is resumed, in the environment, where the program that opens the URI looks for "
            "it, such as MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or PGPASSWORD"
        )


def _key_with_password(value: Any, key: str) -> str:
    """The path of the first key or text with such a URI; empty if there is none."""
    if isinstance(value, str):
        return key if _IN_URI.search(value) else ""
    inner: Any = value.items() if isinstance(value, Mapping) else ()
    inner = enumerate(value) if isinstance(value, list | tuple) else inner
    for name, part in inner:
        path = f"{key}.{name}" if key else str(name)
        if _IN_URI.search(str(name)):
            return without_passwords(path)
        if found := _key_with_password(part, path):
            return found
    return ""

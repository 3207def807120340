"""Passwords in URIs, which must not reach what a run prints and records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rayfl.errors import ScenarioError

_USER = re.compile(
    r"""
    (?<=://)
    (?: [^\s/?#@:]* : [^\s/?#]*                    # user:password
      | [^\s/?#@:\[]* : (?!\d*[,/?#]) [^\s@]*        # a password in which `/`, `?` or `#` is not escaped; not a port
      | (?: glpat- | gh[opsur]_ | github_pat_ | hf_ ) [^\s/?#@:]*
      | (?<=https://) [\w.-]{20,} | (?<=http://) [\w.-]{20,}  # elsewhere it may be a container
    )
    (?= @ (?! sha\d+: ) )                          # the digest of an image
    """,
    re.VERBOSE | re.IGNORECASE,
)
_PARAMETER = re.compile(
    r"""
    (?<= [?&#] )
    ( [^\s=&#]* (?: secret | token(?!iz|s\b) | passw | pwd | credential | signature ) [^\s=&#]*
    | sig
    | [^\s=&#]* (?: api | access | account | private | shared ) [_-]? key (?: [_-]? id )?
    | key
    ) = [^\s&#"]+
    """,
    re.VERBOSE | re.IGNORECASE,
)
_URI = re.compile(r"[\w+.-]{1,32}://\S+")


def without_passwords(text: str) -> str:
    """A text in which `…` replaces the credentials of every URI: user and password, a token, secret parameters."""
    return _URI.sub(lambda uri: _PARAMETER.sub(r"\1=…", _USER.sub("…", uri[0])), text)


def has_password(text: str) -> bool:
    """Whether `without_passwords` changes a text."""
    return without_passwords(text) != text


def check_no_passwords(tables: Mapping[str, Any]) -> None:
    """Checks the tables of a scenario or grid.

    Raises:
        ScenarioError: A key has a URI with a password; names the key, and where to give the password instead.
    """
    if key := _key_with_password(tables, ""):
        raise ScenarioError(
            f"{key}: has a URI with a password, but scenarios are printed and recorded: leave out `user:password@`, a "
            "token, or a parameter such as `password`, and give it, also when the run is resumed, in the environment, "
            "where the program that opens the URI looks for it, such as MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or PGPASSWORD"
        )


def _key_with_password(value: Any, key: str) -> str:
    """The path of the first key or text with such a URI; empty if there is none."""
    if isinstance(value, str):
        return key if has_password(value) else ""
    inner: Any = value.items() if isinstance(value, Mapping) else ()
    inner = enumerate(value) if isinstance(value, list | tuple) else inner
    for name, part in inner:
        path = f"{key}.{name}" if key else str(name)
        if has_password(str(name)):
            return without_passwords(path)
        if inner_path := _key_with_password(part, path):
            return inner_path
    return ""

"""Collects what `rayfl doctor` checks about Ray; starts nothing and joins no cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ray._common.utils import get_default_ray_temp_dir
from ray._private.services import find_bootstrap_address, find_gcs_addresses

from rayfl.cluster.connection import check_is_cluster
from rayfl.doctor.ray_setup import RayFacts
from rayfl.doctor.storage import folder_size
from rayfl.errors import ResourceError


def ray_facts() -> RayFacts:
    """The facts about Ray on this machine; sends a cluster's address two short requests."""
    named = os.environ.get("RAY_ADDRESS", "")
    address = named if named not in ("", "auto", "local") else _local_address()
    temporary = Path(get_default_ray_temp_dir())
    sessions = [path for path in temporary.glob("session_*") if path.is_dir() and not path.is_symlink()]
    return RayFacts(
        address=address,
        named=bool(named) and address == named,
        unreachable=_unreachable(address),
        auth_mode=os.environ.get("RAY_AUTH_MODE", ""),
        token_from=token_from(os.environ, Path.home()),
        temporary=temporary,
        sessions=len(sessions),
        sessions_size=sum(map(folder_size, sessions)),
    )


def token_from(environment: Mapping[str, str], home: Path) -> str:
    """Where Ray finds its token, in Ray's own order; empty if there is none."""
    if environment.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    if path := environment.get("RAY_AUTH_TOKEN_PATH"):
        return path if Path(path).is_file() else ""
    default = home / ".ray" / "auth_token"
    return str(default) if default.is_file() else ""


def _local_address() -> str:
    running = find_gcs_addresses()
    return find_bootstrap_address(None) or next(iter(running), "")


def _unreachable(address: str) -> str:
    try:
        if address:
            check_is_cluster(address)
    except ResourceError as error:
        return str(error)
    return ""

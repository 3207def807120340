"""Collects what `rayfl doctor` checks about Ray; starts nothing and joins no cluster."""

from __future__ import annotations

import os
from pathlib import Path

from ray._common.utils import get_default_ray_temp_dir

from rayfl.cluster.connection import check_is_cluster, local_address, token_from
from rayfl.doctor.ray_setup import RayFacts
from rayfl.doctor.storage import folder_size
from rayfl.errors import ResourceError


def ray_facts() -> RayFacts:
    """The facts about Ray on this machine; sends a cluster's address two short requests."""
    named = os.environ.get("RAY_ADDRESS", "")
    address = local_address()
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


def _unreachable(address: str) -> str:
    try:
        if address:
            check_is_cluster(address)
    except ResourceError as error:
        return str(error)
    return ""

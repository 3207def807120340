"""Checks Ray: the library, the cluster, the token, and files of earlier sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rayfl.doctor.check import GB, Check, in_gb
from rayfl.doctor.libraries import Library
from rayfl.doctor.storage import folder_size
from rayfl.errors import ResourceError

GROUP = "Ray"
MANY_SESSIONS, LARGE_SESSIONS = 20, 5 * GB


@dataclass(frozen=True)
class RayFacts:
    """The facts that the checks judge, once Ray can be imported.

    Attributes:
        address: The cluster that a run with `--address auto` or RAY_ADDRESS would join; empty if there is none.
        named: Whether RAY_ADDRESS names it.
        unreachable: Why no cluster can be joined there, and after a colon what to do; empty if one can.
        auth_mode: RAY_AUTH_MODE; empty if it is not set.
        token_from: Where a token was found, never the token itself; empty if there is none.
        temporary: Ray's folder for sessions.
        sessions: Number of sessions in it.
        sessions_size: Their bytes.
    """

    address: str
    named: bool
    unreachable: str
    auth_mode: str
    token_from: str
    temporary: Path
    sessions: int
    sessions_size: int


def ray_facts() -> RayFacts:
    """The facts about Ray on this machine; sends a cluster's address two short requests, and joins no cluster."""
    from rayfl.cluster.connection import check_is_cluster, local_address, temporary_folder, token_from

    def unreachable(address: str) -> str:
        try:
            if address:
                check_is_cluster(address)
        except ResourceError as error:
            return str(error)
        return ""

    named = os.environ.get("RAY_ADDRESS", "")
    address = local_address()
    temporary = temporary_folder()
    sessions = [path for path in temporary.glob("session_*") if path.is_dir() and not path.is_symlink()]
    return RayFacts(
        address=address,
        named=bool(named) and address == named,
        unreachable=unreachable(address),
        auth_mode=os.environ.get("RAY_AUTH_MODE", ""),
        token_from=token_from(os.environ, Path.home()),
        temporary=temporary,
        sessions=len(sessions),
        sessions_size=sum(map(folder_size, sessions)),
    )


def ray_library_check(found: Library) -> Check:
    """Checks that Ray can be imported."""
    if not found.version:
        return Check(
            GROUP, "library", "not installed", "problem", "pip install 'ray[default]'; or use --backend inline"
        )
    if found.error:
        remedy = "reinstall ray[default]; until then use --backend inline"
        return Check(GROUP, "library", f"{found.version}, cannot be imported ({found.error})", "problem", remedy)
    return Check(GROUP, "library", found.version)


def ray_checks(facts: RayFacts) -> Iterator[Check]:
    """Checks the cluster, the token and earlier sessions."""
    yield _cluster(facts)
    yield _token(facts)
    said = f"{facts.sessions} in {facts.temporary}, {in_gb(facts.sessions_size)}"
    if facts.sessions > MANY_SESSIONS or facts.sessions_size > LARGE_SESSIONS:
        remedy = f"when no Ray is running: rm -r {facts.temporary}/session_*"
        yield Check(GROUP, "sessions", said, "warning", remedy)
    else:
        yield Check(GROUP, "sessions", said)


def _cluster(facts: RayFacts) -> Check:
    if not facts.address:
        return Check(GROUP, "cluster", "none: rayfl starts Ray on this machine for each run")
    by = "RAY_ADDRESS" if facts.named else "a local cluster"
    if not facts.unreachable:
        return Check(GROUP, "cluster", f"answers at {facts.address} ({by})")
    found, _, remedy = facts.unreachable.partition(": ")
    if facts.named:
        return Check(GROUP, "cluster", f"RAY_ADDRESS: {found}", "problem", remedy)
    if "token" in found:
        return Check(GROUP, "cluster", found, "warning", remedy)
    remedy = "a cluster has ended without `ray stop`: run `ray stop`"
    return Check(GROUP, "cluster", f"{by}: {found}", "warning", remedy)


def _token(facts: RayFacts) -> Check:
    mode = f"RAY_AUTH_MODE={facts.auth_mode}" if facts.auth_mode else "RAY_AUTH_MODE is not set"
    if facts.token_from:
        return Check(GROUP, "token", f"{mode}, a token is in {facts.token_from}")
    if facts.auth_mode == "token":
        remedy = "make one with `ray get-auth-token --generate`, or set RAY_AUTH_TOKEN_PATH to the cluster's"
        return Check(GROUP, "token", f"{mode}, but there is no token", "problem", remedy)
    return Check(GROUP, "token", f"{mode}, no token")

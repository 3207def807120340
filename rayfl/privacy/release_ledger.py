"""The ledger of a run with `secure` noise: what each round may release, on disk before the round begins.

Such a run cannot draw its noise again. Rounds that are repeated after a stop therefore release information about their
samples and clients once more, and results in flight when the run was killed may have been seen. For this reason each
round is charged in full, with all of its exchanges, before any worker or the server learns of it. An entry is a line of
JSON; its digest covers the entry and the digest of the one before, so a lost or changed line is detected.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rayfl.errors import ResourceError
from rayfl.files import atomic_write
from rayfl.local.spending import Mechanism, SpendingByClient

LEDGER_FILE = "ledger.jsonl"
"""In the run folder."""

FORMAT = 1


@dataclass(frozen=True)
class ChargedRound:
    """A round, with the releases that it is charged for.

    Attributes:
        phase: Position of its phase, from 0.
        round: Position within the whole scenario, from 1.
        clients: The clients that take part.
        spent: Its spending of each client's example-level budget (`local.dp`), by client.
    """

    phase: int
    round: int
    clients: tuple[int, ...]
    spent: SpendingByClient = field(default_factory=dict)


class ReleaseLedger:
    """The ledger in a run folder; it can be sent to another process on the same machine, which then appends to it.

    Args:
        folder: The run folder.
        digest: Digest of its last entry.
    """

    def __init__(self, folder: Path, digest: str = "") -> None:
        self._path, self._digest = folder / LEDGER_FILE, digest

    @classmethod
    def create(cls, folder: Path) -> ReleaseLedger:
        """Creates an empty ledger.

        Raises:
            ResourceError: One exists already, or it cannot be written.
        """
        path = folder / LEDGER_FILE
        if path.exists():
            raise ResourceError(
                f"'{path}' is the ledger of another run and records its releases: keep it and choose "
                "another folder, or continue that run (`rayfl resume`)"
            )
        try:
            with atomic_write(path):
                pass
        except OSError as error:
            raise ResourceError(f"cannot write the ledger '{path}': {error.strerror or error}") from None
        return cls(folder)

    @classmethod
    def reopen(cls, folder: Path, committed: int) -> ReleaseLedger:
        """Opens the ledger of a run that is to be resumed.

        If a crash left an entry half-written, it is removed: its round had not begun.

        Args:
            folder: The run folder.
            committed: The last round that the run is known to have committed.

        Raises:
            ResourceError: The ledger is missing or damaged, or lacks a round.
        """
        path = folder / LEDGER_FILE
        content = _content(path)
        entries, digest, whole = _entries(path, content)
        if whole < len(content):
            os.truncate(path, whole)
        furthest = max((entry.round for entry in entries if isinstance(entry, ChargedRound)), default=0)
        if furthest < committed:
            raise _damaged(path, f"the run reached round {committed}, but its last entry is for round {furthest}")
        return cls(folder, digest)

    def begin(self, after: int) -> None:
        """Records that the run starts, or resumes, after a round; later rounds that were already charged are lost.

        Raises:
            ResourceError: It cannot be written.
        """
        self._append({"format": FORMAT, "goes_on_after": after})

    def charge(self, charged: ChargedRound) -> None:
        """Charges a round; the entry is on disk when this returns, even if the process or its machine fails afterwards.

        Raises:
            ResourceError: It cannot be written.
        """
        self._append(
            {
                "round": charged.round,
                "phase": charged.phase,
                "clients": list(charged.clients),
                "samples": _by_spending(charged.spent),
            }
        )

    def discarded(self, after: int) -> tuple[ChargedRound, ...]:
        """Returns the rounds that were charged but have no part in the model after a round: repeated or lost ones.

        Args:
            after: The round that the run has reached, or resumes after.

        Raises:
            ResourceError: The ledger is missing or damaged.
        """
        entries, _, _ = _entries(self._path, _content(self._path))
        lost: list[ChargedRound] = []
        line: list[ChargedRound] = []
        for entry in [*entries, after]:
            if isinstance(entry, ChargedRound):
                line.append(entry)
                continue
            lost += [charged for charged in line if charged.round > entry]
            line = [charged for charged in line if charged.round <= entry]
        return tuple(lost)

    def _append(self, entry: Mapping[str, Any]) -> None:
        entry = {**entry, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        digest = _digest(self._digest, entry)
        try:
            with self._path.open("ab") as file:
                file.write(json.dumps({**entry, "digest": digest}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ResourceError(
                f"cannot write the ledger '{self._path}': {error.strerror or error}; a round with `secure` noise is "
                "charged before it begins, so none can begin"
            ) from None
        self._digest = digest


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None


def _entries(path: Path, content: bytes) -> tuple[list[ChargedRound | int], str, int]:
    """Returns all entries, the last digest, and the length of complete entries; a number is a round to resume after."""
    whole = content.rfind(b"\n") + 1
    entries: list[ChargedRound | int] = []
    digest = ""
    for number, line in enumerate(content[:whole].splitlines(), start=1):
        try:
            entry = json.loads(line)
            before, digest = digest, entry.pop("digest")
            if digest != _digest(before, entry):
                raise ValueError("its digest does not match its content")
            entries.append(_entry(entry))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _damaged(path, f"line {number}: {error}") from None
    if not entries:
        raise _damaged(path, "it is empty")
    return entries, digest, whole


def _entry(plain: Mapping[str, Any]) -> ChargedRound | int:
    if "goes_on_after" in plain:
        if plain["format"] != FORMAT:
            raise ValueError(f"it has format {plain['format']}, but this version of rayfl reads format {FORMAT}")
        return int(plain["goes_on_after"])
    spent: dict[int, dict[Mechanism, int]] = {}
    for group in plain["samples"]:
        for client in group["clients"]:
            spent[client] = {Mechanism(*used): times for *used, times in group["spent"]}
    return ChargedRound(plain["phase"], plain["round"], tuple(plain["clients"]), spent)


def _by_spending(spent: SpendingByClient) -> list[dict[str, Any]]:
    """Groups clients that spend the same: noise multiplier, rate, part of the samples, times."""
    groups: dict[tuple[tuple[Mechanism, int], ...], list[int]] = {}
    for client, spending in spent.items():
        groups.setdefault(tuple(sorted(spending.items())), []).append(client)
    return [
        {
            "clients": clients,
            "spent": [[used.noise_multiplier, used.rate, used.part, times] for used, times in spending],
        }
        for spending, clients in groups.items()
    ]


def _digest(before: str, entry: Mapping[str, Any]) -> str:
    return hashlib.sha256((before + json.dumps(entry)).encode()).hexdigest()


def _damaged(path: Path, why: str) -> ResourceError:
    return ResourceError(
        f"the ledger '{path}' is missing or damaged ({why}): without it, the run's releases are unknown, and "
        "the run cannot be resumed; restore the file, or leave the run as it ended"
    )


@dataclass(frozen=True)
class Charges:
    """The account of releases.

    Attributes:
        ledger: The ledger in which every round is charged before it begins.
        discarded: Rounds that were charged earlier but are no longer part of the run, such as repeated ones.
        last_round: The last round that `phases.N.dp.target_epsilon` permits in addition to those; None for no limit.
    """

    ledger: ReleaseLedger
    discarded: tuple[ChargedRound, ...] = ()
    last_round: int | None = None

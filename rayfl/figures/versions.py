"""Finds runs that used different versions of the same user code or data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rayfl.figures.recorded_run import RecordedRun
from rayfl.reading import reading


def version_notes(runs: Sequence[RecordedRun]) -> list[str]:
    """A sentence for every module and every data set of which the records name more than one version.

    Raises:
        DataError: The records of a run's code or data are damaged.
    """
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        with reading(run.where, "as the records of a finished run"):
            for of, digest in _digests(run):
                found.setdefault(of, {}).setdefault(digest, []).append(run.where)
    return [
        f"Different versions of the {what}: {' | '.join(', '.join(folders) for folders in by_digest.values())}."
        for (what, _), by_digest in found.items()
        if len(by_digest) > 1
    ]


def _digests(run: RecordedRun) -> Iterator[tuple[tuple[str, str], str]]:
    """(what, what was asked for) and the digest, of the user's modules and of the data; older records have none."""
    for module, digest in run.environment.get("code", {}).items():
        yield (f"code of {module}", ""), digest
    data = run.environment.get("data", {})
    if data.get("digest"):
        # generated data, and arrays from a program, may depend on every key of `data`
        asked = run.scenario["data"]
        keys = ("name", "source", "options") if data["files"] else sorted(asked)
        seed = "" if data["files"] else f" with seed {data['seed']}"
        yield (f"data of {data['name']}{seed}", json.dumps([asked.get(key) for key in keys])), data["digest"]

"""Runs that are kept: the scenario, and of each evaluated round what the pictures need."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from rich.console import Console

import rayfl
from rayfl.files import atomic_write, write_json
from rayfl.runs.archive import RunArchive
from rayfl.runs.folder import ENVIRONMENT_FILE, METRICS_FILE, SCENARIO_FILE
from rayfl.runs.status import STATUS
from tools.algorithm_curves.settings import SETTINGS, Curve, scenario

ASKED_FILE = "asked.json"
"""The scenario without what rayfl adds to it, so that later defaults do not make a run another one."""

KEPT_COLUMNS = ("phase", "round", "round_in_phase", "train_loss", "bytes", "transfers")
KEPT_FACTS = ("data", "headline", "packages", "python", "place")
KEPT_STATUS = ("status", "rounds", "committed_rounds")
KEPT_PACKAGES = ("rayfl", "torch", "torchvision", "numpy")


def is_kept(curve: Curve, records: Path) -> bool:
    """Whether the records hold a run of the curve's scenario as it is now."""
    path = records / curve.name / ASKED_FILE
    return path.is_file() and json.loads(path.read_text(encoding="utf-8")) == scenario(curve)


def run(curve: Curve, records: Path) -> None:
    """Runs a curve's scenario in this process and keeps it, as a folder that `rayfl.plot` reads.

    Args:
        curve: The curve.
        records: The folder of all records.
    """
    with tempfile.TemporaryDirectory(prefix="rayfl-") as folder:
        result = rayfl.run(scenario(curve), backend="inline", out=folder, console=Console(quiet=True))
        kept = records / curve.name
        kept.mkdir(parents=True, exist_ok=True)
        columns = (*KEPT_COLUMNS, SETTINGS[curve.setting].metric)
        with atomic_write(kept / METRICS_FILE) as path:
            rows = ({name: row[name] for name in columns} for row in result.metrics.to_pylist())
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        archive = RunArchive(result.directory)
        facts, status = archive.environment, archive.status or {}
        for file in facts["data"]["files"]:
            file["path"] = Path(file["path"]).name  # the folder is that of one machine
        facts["packages"] = {name: facts["packages"][name] for name in KEPT_PACKAGES}
        write_json(kept / ENVIRONMENT_FILE, {name: facts[name] for name in KEPT_FACTS})
        write_json(kept / STATUS, {name: status[name] for name in KEPT_STATUS})
        shutil.copyfile(result.directory / SCENARIO_FILE, kept / SCENARIO_FILE)
        # last: the run is kept once this is there
        write_json(kept / ASKED_FILE, scenario(curve))

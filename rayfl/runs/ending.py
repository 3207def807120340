"""Saves a run's last committed model, status and curves, however the run ends, and reads what its end shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from rayfl.callbacks.callback import Ending
from rayfl.config.user_modules import import_paths
from rayfl.console import print_warning
from rayfl.engine.backend import BackendSession
from rayfl.engine.plan.headline import Headline
from rayfl.errors import RayflError
from rayfl.runs.archive import RunArchive
from rayfl.runs.committed_rounds import CommittedModels
from rayfl.runs.figures.client_scores import ClientScores, scores_by_set
from rayfl.runs.folder import PRIVACY_FILE
from rayfl.runs.follower import Follower
from rayfl.runs.privacy_record import PrivacyRecords
from rayfl.runs.records import Records
from rayfl.runs.status import MODEL, Status
from rayfl.wording import one_line


def end_callbacks(follower: Follower, ending: Ending, console: Console) -> None:
    """Calls `on_end`; errors are printed rather than raised, since the records are complete."""
    for raised in follower.end(ending):
        print_warning(console, raised)


def end_early(
    error: BaseException,
    session: BackendSession | None,
    models: CommittedModels,
    records: Records,
    status: Status,
    console: Console,
    privacy: PrivacyRecords | None = None,
    reopened_after: int = 0,
    resuming: str = "",
) -> None:
    """Saves the model and records of a failed or interrupted run. Further errors are printed rather than raised.

    Args:
        error: The error that ended the run.
        session: The run's session; None if it could not be opened.
        models: The models of its phases.
        records: The records in the run's folder.
        status: The run's status.json.
        console: Prints warnings.
        privacy: The run's privacy records.
        reopened_after: For a reopened run that failed to continue, the last round before; otherwise 0.
        resuming: How to resume the run; empty if it has no checkpoint to resume from.
    """
    saved, missing, outcome = None, None, "no round was committed, so there is no model"
    if reopened_after:
        missing = outcome = f"the run could not continue after round {reopened_after}, so nothing new was saved"
    else:
        try:
            # on Ray, more rounds may have been committed since the last event arrived
            committed, state = models.of(session)
            if committed:
                records.write_model(state)
                saved, outcome = committed, f"{MODEL} holds the model of round {committed}"
        except BaseException as failure:  # a second Ctrl-C too: the status must still be written
            missing = one_line(failure)
            outcome = f"the model of the last committed round could not be saved: {missing}"
    try:
        if privacy is not None:
            privacy.finish(records, saved)
    except Exception as failure:
        print_warning(console, f"{PRIVACY_FILE} is incomplete: {one_line(failure)}")
    try:
        records.close()
    except BaseException as failure:  # as above
        print_warning(console, f"the records are incomplete: {one_line(failure)}")
    try:
        status.ended_early(error, saved, missing)
    except Exception as failure:
        print_warning(console, f"status.json could not be written: {one_line(failure)}")
    resumed = f"; continue with {resuming}" if resuming else ""
    print_warning(console, f"the run ended early; {outcome}; records: {records.where}{resumed}")


def how_to_resume(where: str, scenario: Mapping[str, Any]) -> str:
    """How to continue a run: by a command, unless its own code is in the program that began it.

    Args:
        where: The run's folder or URI.
        scenario: Its scenario, as plain tables.
    """
    if any(path.startswith("__main__:") for path in import_paths(scenario)):
        return f"`rayfl.run(resume={where!r})` in this program"
    return f"`rayfl resume {shlex.quote(where)}`"


def draw(folder: Path, console: Console) -> None:
    """Draws the curves; an error is printed rather than raised, since the records are complete."""
    # matplotlib takes longer to import than Ray's first actor takes to start, and is not needed earlier
    from rayfl.runs.figures.curves import CURVES_FILE, draw_curves

    try:
        draw_curves(folder)
    except Exception as error:
        print_warning(console, f"could not draw {CURVES_FILE}: {one_line(error)}")


def last_scores(folder: Path, headlines: Mapping[str, Headline], console: Console) -> list[ClientScores]:
    """The last scores of single clients; damage is a warning, since the run has finished and its result stays.

    Args:
        folder: The folder of the run.
        headlines: The metrics that rank the rounds of each phase.
        console: Prints the warning.
    """
    archive = RunArchive(folder)
    try:
        table = archive.scores_of_clients
        return [] if table is None else scores_by_set(archive, headlines[table["phase"][0].as_py()])
    except RayflError as error:
        print_warning(console, one_line(error))
        return []

"""Models that callbacks keep in the run's folder."""

from __future__ import annotations

from pathlib import Path

from rayfl.callbacks.callback import RunSoFar
from rayfl.report.model_file import write_model


def keep_model(run: RunSoFar, path: Path) -> None:
    """Writes the model of the current round; the file's metadata names the round.

    Raises:
        ResourceError: The file cannot be written.
    """
    assert run.round is not None
    path.parent.mkdir(exist_ok=True)
    write_model(path, run.model(), {"round": str(run.round.round), "phase": run.round.phase})

"""Records which run has begun in the folder of a cell, so that only the same run continues there."""

from __future__ import annotations

import json
import shutil

from rayfl.durable import write_json
from rayfl.grid.cells import Cell
from rayfl.privacy.release_ledger import LEDGER_FILE

BEGUN = "begun.json"


def begin(cell: Cell) -> None:
    """Records that a run of this cell begins in its folder."""
    write_json(cell.folder / BEGUN, _what(cell))


def has_begun(cell: Cell) -> bool:
    """Whether a run with the scenario, starts, weights, code and device of this cell has begun in its folder."""
    try:
        return bool(json.loads((cell.folder / BEGUN).read_text(encoding="utf-8")) == _what(cell))
    except (FileNotFoundError, ValueError):
        return False


def goes_on(cell: Cell) -> bool:
    """Whether such a run has a checkpoint to continue from."""
    if not has_begun(cell):
        return False
    from rayfl.checkpoint.checkpoints import Checkpoints  # loads PyTorch

    return Checkpoints(cell.folder, 1).any()


def clear(cell: Cell, but: str) -> None:
    """Clears the folder of a cell for a new run; a run with a release ledger is moved beside the folder instead.

    Args:
        cell: The cell.
        but: The name of a file that stays.
    """
    others = [path for path in cell.folder.iterdir() if path.name != but]
    if (cell.folder / LEDGER_FILE).exists():
        number = sum(1 for _ in cell.folder.parent.iterdir())
        aside = cell.folder.with_name(f"{cell.folder.name}-stopped-{number}")
        aside.mkdir()
        for path in others:
            path.rename(aside / path.name)
        return
    for path in others:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _what(cell: Cell) -> dict[str, object]:
    return {**cell.identity, "code": dict(cell.code), "device": cell.device}

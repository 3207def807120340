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

    Raises:
        ResourceError: Something cannot be removed.
    """
    from rayfl.lifecycle.in_place import making_way, move_aside  # loads PyTorch

    if (cell.folder / LEDGER_FILE).exists():
        move_aside(cell.folder, but)
        return
    with making_way(cell.folder):
        for path in cell.folder.iterdir():
            if path.name == but:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _what(cell: Cell) -> dict[str, object]:
    return {**cell.identity, "code": dict(cell.code), "device": cell.device}

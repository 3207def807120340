"""Keeps the records of a run that starts over until the first round of the new attempt is committed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rayfl.errors import ResourceError
from rayfl.privacy.release_ledger import LEDGER_FILE
from rayfl.runs.folder import (
    CLIENT_PARTS,
    CLIENTS_FILE,
    ENVIRONMENT_FILE,
    METRICS_FILE,
    PRIVACY_FILE,
    SCENARIO_FILE,
)
from rayfl.runs.run_lock import HeldError
from rayfl.runs.status import STATUS

OLD = ".before"
"""Holds the old records while the new attempt has committed no round."""

MOVING = ".before-moving"
"""The same folder while files are being moved in or out: those in it are old, and those beside it too."""

_COPIED = (SCENARIO_FILE, ENVIRONMENT_FILE, STATUS, PRIVACY_FILE)
"""Copied rather than moved, since resuming reads them."""


class OldRecords:
    """The records that an earlier attempt left in a run's folder. Killing the process at any time loses none of them.

    This does not hold at a URI: a folder is not renamed in one step there, so a kill may leave records of both.

    With `secure` noise, privacy.json stays that of the new attempt, which counts the releases of both.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._old, self._moving = folder, folder / OLD, folder / MOVING

    def set_aside(self) -> None:
        """Makes way for a new attempt; records that a killed one set aside count, and not those that it left itself.

        Raises:
            ResourceError: A file cannot be moved.
        """
        self.put_back()
        with self._moving_files():
            self._moving.mkdir()
            for name in _COPIED:
                if (self._folder / name).exists():
                    shutil.copy2(self._folder / name, self._moving / name)
            for path in self._appended():
                path.replace(self._moving / path.name)
            self._moving.replace(self._old)

    def put_back(self) -> bool:
        """Replaces the records of a new attempt by those that were set aside; returns whether there were any.

        Raises:
            ResourceError: A file cannot be moved.
        """
        with self._moving_files():
            if self._old.exists() and self._moving.exists():  # from a URI; which files beside them are old is unknown
                for path in self._old.iterdir():
                    path.replace(self._moving / path.name)
                self._old.rmdir()
            elif self._old.exists():
                for path in (*self._appended(), self._folder / PRIVACY_FILE):
                    if path.name != PRIVACY_FILE or not self._charged():
                        path.unlink(missing_ok=True)
                self._old.replace(self._moving)
            if not self._moving.exists():
                return False
            for path in self._moving.iterdir():
                if path.name != PRIVACY_FILE or not self._charged():
                    path.replace(self._folder / path.name)
            shutil.rmtree(self._moving)
            return True

    def drop(self) -> None:
        """Removes what was set aside, once the new attempt has committed a round."""
        unused = self._old.with_name(f"{OLD}-unused")  # a half-removed folder must not be put back
        for old in (self._old, self._moving):
            if old.exists():
                shutil.rmtree(unused, ignore_errors=True)
                old.replace(unused)
                shutil.rmtree(unused, ignore_errors=True)

    @contextmanager
    def kept_until(self, committed: Callable[[], bool], say: Callable[[str], None]) -> Iterator[None]:
        """Puts the records back if the block ends before the new attempt has committed a round, else drops them.

        Leaves them alone after a HeldError.

        Args:
            committed: Whether the new attempt has committed a round.
            say: Receives a remark if the records are put back.
        """
        try:
            yield
        except HeldError:  # they are those of another process now
            raise
        except BaseException:
            self._end(committed, say)
            raise
        self._end(committed, say)

    def _end(self, committed: Callable[[], bool], say: Callable[[str], None]) -> None:
        if committed():
            self.drop()
        elif self.put_back():
            say("no round was committed, so the earlier records of the run are in place again")

    def _appended(self) -> list[Path]:
        fixed = [self._folder / name for name in (METRICS_FILE, CLIENTS_FILE)]
        return [*(path for path in fixed if path.exists()), *self._folder.glob(CLIENT_PARTS)]

    def _charged(self) -> bool:
        return (self._folder / LEDGER_FILE).exists()

    @contextmanager
    def _moving_files(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(
                f"cannot move the earlier records in '{self._folder}': {error.strerror or error}"
            ) from None

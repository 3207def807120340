"""The cells of a grid, and which of them are finished."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rayfl.config.loading import Overrides, load_scenario, read_toml
from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario
from rayfl.config.start import Start
from rayfl.errors import ResourceError, ScenarioError
from rayfl.fingerprint.recorded import changed_code, recorded
from rayfl.fingerprint.users_code import code_digests
from rayfl.grid.differences import differences
from rayfl.grid.place import Place, with_place
from rayfl.grid.schema import Grid, folder_name
from rayfl.reading import read_json_object, reading
from rayfl.report.status import MODEL
from rayfl.resolution import resolve
from rayfl.start.chain import starts_of, with_starts

MARKER = "finished.json"


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid.

    Attributes:
        place: Its row, column, seed and task.
        scenario: What is run, every default written out.
        folder: Its own.
        starts: Where models of scenarios that cells start from are kept.
        starts_digest: Of the scenarios that it starts from, as their files have them now; empty if it starts from none.
        weights: The sha256 of the file or run's weights that it, or a scenario behind it, begins with; empty if there
            are none, or not any more.
        code: Digests of the user's own code behind it and behind those, as it is now; see `code_digests`.
    """

    place: Place
    scenario: Scenario
    folder: Path
    starts: Path
    starts_digest: str = ""
    weights: str = ""
    code: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.place)

    @property
    def row(self) -> str:
        """The label of its row."""
        return self.place.row

    @property
    def column(self) -> str:
        """The label of its column."""
        return self.place.column

    @property
    def digest(self) -> str:
        """Of what a finished run's figures depend on."""
        return _digest(self.scenario)

    @property
    def identity(self) -> dict[str, str]:
        """What its results depend on, but for code, data and device, which a run records itself."""
        return {"digest": self.digest, "starts": self.starts_digest, "weights": self.weights}

    @property
    def device(self) -> str:
        """The kind of device that it would run on now: `cpu` or `cuda`."""
        return "cuda" if self.scenario.resources.uses_cuda else "cpu"

    def finished(self) -> bool:
        """Returns whether this very scenario has been run to its end here.

        Raises:
            ScenarioError: Another scenario has, and the message says in what it differs; or this one has from other
                weights, with other code of the user's, or on another kind of device, whose results are not the same to
                the bit.
        """
        marker = self.folder / MARKER
        if not marker.exists():
            return False
        found = read_json_object(marker, ResourceError)
        if found.get("digest") != self.digest and not self._holds_the_same_scenario():
            before = read_toml(self.folder / "scenario.toml")
            raise ScenarioError(
                f"{self}: '{self.folder}' holds a run of another scenario, which differs in\n"
                f"{differences(before, tomllib.loads(self.scenario.to_toml()))}\n"
                "give the same overrides as then, or another folder with --out, or remove that one to run it again"
            )
        if found.get("starts", self.starts_digest) != self.starts_digest:
            assert self.scenario.start is not None
            raise ScenarioError(
                f"{self}: '{self.folder}' holds a run that started from '{self.scenario.start.scenario}' before that "
                "scenario was changed; name another folder with --out, or remove that one to run it again"
            )
        if self.weights and found.get("weights", self.weights) != self.weights:
            raise ScenarioError(
                f"{self}: '{self.folder}' holds a run from before the weights that it starts from were changed; "
                "restore them, or name another folder with --out, or remove that one to run it again"
            )
        code = recorded(self.folder).code
        if code is not None and (changed := changed_code(code, self.code)):
            raise ScenarioError(
                f"{self}: '{self.folder}' holds a run from before your code was changed: {', '.join(changed)}; undo "
                "that, or name another folder with --out, or remove that one to run it again"
            )
        device = found.get("device") or device_of_hosts(self.folder)
        if device != self.device:
            raise ScenarioError(
                f"{self}: '{self.folder}' holds a run on {device}, and now cells run on {self.device}, which does not "
                "give the same bits; set resources.device and resources.gpus_per_host as they were then, or name "
                "another folder with --out, or remove that one to run it again"
            )
        return True

    def _holds_the_same_scenario(self) -> bool:
        """Whether only the schema has changed since, such as by an option that is left at its default."""
        try:
            return _digest(resolve(load_scenario(self.folder / "scenario.toml"))) == self.digest
        except ScenarioError:
            return False


def _digest(scenario: Scenario) -> str:
    resolved = scenario.model_dump(mode="json", exclude=set(CHANGES_NO_RESULT))
    return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()


def _digest_of_starts(start: Start | None) -> str:
    """What is at its default is left out, so that a new option changes no digest."""
    scenarios = [
        link.scenario.model_dump(mode="json", exclude=set(CHANGES_NO_RESULT), exclude_defaults=True)
        for link in starts_of(start)
    ]
    if not scenarios:
        return ""
    return hashlib.sha256(json.dumps(scenarios, sort_keys=True).encode()).hexdigest()


def _digest_of_weights(start: Start | None) -> str:
    for link in starts_of(start):
        start = link.scenario.start
    if start is None or (start.file is None and start.run is None):
        return ""
    path = Path(start.run, MODEL) if start.run is not None else Path(str(start.file))
    try:
        with path.open("rb") as weights:
            return hashlib.file_digest(weights, "sha256").hexdigest()
    except OSError:  # cells that are left to run say so
        return ""


def device_of_hosts(folder: Path) -> str:
    """The kind of device that a run was on, from its records: `cpu` or `cuda`."""
    path = folder / "environment.json"
    with reading(path, "as the environment of a run", ResourceError):
        return str(read_json_object(path, ResourceError)["hosts"][0]["device"]).partition(":")[0]


def cells_of(grid: Grid, out: Path, overrides: Overrides = (), quick: bool = False) -> list[Cell]:
    """Returns every cell that is not skipped, in the grid's order.

    A cell's folder is `<out>/<grid>/<row>/<column>/seed_<n>`, and in a grid with tasks `task_<k>` in that. Its scenario
    has a title of its own, and every default written out.

    Args:
        grid: Its rows, columns, seeds and tasks.
        out: The folder above the grid's.
        overrides: Of all cells.
        quick: Applies the scenario's and the grid's [quick].

    Raises:
        ScenarioError: The scenario of a cell, or one that it starts from, is wrong, or names something that is not
            there; says which cell.
    """
    cells = []
    resolved: dict[tuple[str, str], Scenario] = {}
    starts: set[str] = set()
    digests: dict[str, tuple[str, str]] = {}
    code: dict[tuple[str, str], dict[str, str]] = {}
    for place, scenario in grid.scenarios(overrides, quick).items():
        row, column, seed, task = place
        try:
            if (row, column) not in resolved:
                _resolve_starts(scenario, starts)
                resolved[row, column] = resolve(scenario)
                code[row, column] = code_digests(with_starts(resolved[row, column]))
        except ScenarioError as error:
            raise ScenarioError(f"grid '{grid.name}', {row} / {column}: {error}") from None
        folder = out / grid.name / folder_name(row) / folder_name(column) / f"seed_{seed}"
        folder = folder if task is None else folder / f"task_{task}"
        title = f"{grid.title or grid.name}: {place}"
        whole = with_place(resolved[row, column], place).model_copy(update={"title": title})
        key = whole.start.model_dump_json() if whole.start else ""
        if key not in digests:
            digests[key] = _digest_of_starts(whole.start), _digest_of_weights(whole.start)
        cells.append(Cell(place, whole, folder, out / grid.name / "starts", *digests[key], code[row, column]))
    return cells


def _resolve_starts(scenario: Scenario, known: set[str]) -> None:
    """Checks the names and options of the scenarios that a cell starts from, each once.

    Raises:
        ScenarioError: One of them is wrong.
    """
    for key, first in starts_of(scenario.start):
        if key not in known:
            known.add(key)
            try:
                resolve(first)
            except ScenarioError as error:
                raise ScenarioError(f"start.scenario '{first.name}': {error}") from None

"""The cells of a grid, whether they are finished, and whether all of them use the same data."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rayfl.config.loader import Overrides
from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario, Start
from rayfl.errors import DataError, ResourceError, ScenarioError
from rayfl.files import check_regular, read_json_object, reading
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.environment import changed_code, code_digests
from rayfl.runs.folder import SCENARIO_FILE
from rayfl.runs.resolution import resolve
from rayfl.runs.start_chain import starts_of, with_starts
from rayfl.runs.status import MODEL
from rayfl.studies.grid.archive import STARTS
from rayfl.studies.grid.differences import differences
from rayfl.studies.grid.place import folder_of, with_place
from rayfl.studies.grid.results import FinishedRun
from rayfl.studies.grid.schema import Grid

if TYPE_CHECKING:
    from rayfl.runs.preparation import Prepared

MARKER = "finished.json"


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid.

    Attributes:
        place: Its place in the grid.
        scenario: Its scenario, with every default.
        folder: The folder of the run.
        starts: The folder for models of scenarios that cells start from.
        starts_digest: Digest of the scenarios that it starts from, as their files are now; empty if there are none.
        weights: The sha256 of the weights, of a file or a run, at the beginning of its chain of starts; empty if there
            are none, or no longer.
        code: Current digests of the user's code in all these scenarios; see `code_digests`.
    """

    place: GridPlace
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
        """Digest of everything in the scenario that can change results."""
        return _digest(self.scenario)

    @property
    def identity(self) -> dict[str, str]:
        """The facts that its results depend on, except code, data and device, which a run records itself."""
        return {"digest": self.digest, "starts": self.starts_digest, "weights": self.weights}

    @property
    def device(self) -> str:
        """The kind of device on which it would run now: `cpu` or `cuda`."""
        return "cuda" if self.scenario.resources.uses_cuda else "cpu"

    def finished(self) -> bool:
        """Returns whether the folder has a finished run of this scenario.

        Raises:
            ScenarioError: The folder has a run of another scenario (the message lists the differences), or one from
                other weights, with other user code, or on another kind of device, whose results are not bitwise equal;
                or the runs of a grid with tasks.
        """
        marker = self.folder / MARKER
        if not marker.exists():
            if self.place.task is None and any(self.folder.glob(f"task_*/{MARKER}")):
                raise ScenarioError(
                    f"{self}: '{self.folder}' has runs of tasks, and the grid has no tasks now; choose another folder "
                    "with --out, or remove that one to run it again"
                )
            return False
        archive, record = RunArchive(self.folder), read_json_object(marker, ResourceError)
        archive.check_format()
        with reading(marker, error=ResourceError):
            digest, starts, weights, device = (record[key] for key in ("digest", "starts", "weights", "device"))
        if digest != self.digest or record.get("written") != written_scenario(self.folder):
            self.check_scenario()  # another version of rayfl, or somebody else, may have continued the run
        if starts != self.starts_digest:
            assert self.scenario.start is not None
            raise ScenarioError(
                f"{self}: '{self.folder}' has a run that started from '{self.scenario.start.scenario}' before that "
                "scenario was changed; choose another folder with --out, or remove that one to run it again"
            )
        if self.weights and weights != self.weights:
            raise ScenarioError(
                f"{self}: '{self.folder}' has a run from before the weights that it starts from were changed; "
                "restore them, choose another folder with --out, or remove that one to run it again"
            )
        if changed := changed_code(archive.code, self.code):
            raise ScenarioError(
                f"{self}: '{self.folder}' has a run from before your code was changed: {', '.join(changed)}; undo the "
                "change, choose another folder with --out, or remove that one to run it again"
            )
        if device != self.device:
            raise ScenarioError(
                f"{self}: '{self.folder}' has a run on {device}, but cells now run on {self.device}, which does not "
                "give the same bits; set resources.device and resources.gpus_per_host as before, choose another folder "
                "with --out, or remove that one to run it again"
            )
        return True

    def check_scenario(self) -> None:
        """Checks that the run in the folder has this scenario; the schema may have changed, as by a new option.

        Raises:
            ScenarioError: It has another one; lists the differences.
        """
        archive = RunArchive(self.folder)
        differing = differences(archive.tables, tomllib.loads(self.scenario.to_toml()))
        try:
            same = not differing or _digest(resolve(archive.scenario)) == self.digest
        except ScenarioError:
            same = False
        if not same:
            raise ScenarioError(
                f"{self}: '{self.folder}' has a run of another scenario. Differences:\n{differing}\n"
                "use the same overrides as before, choose another folder with --out, or remove that one to run it again"
            )


def written_scenario(folder: Path) -> str:
    """The sha256 of the scenario.toml of a run, which changes when somebody resumes the run in another way.

    Raises:
        ResourceError: It is missing.
    """
    path = folder / SCENARIO_FILE
    with reading(path, error=ResourceError):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(scenario: Scenario) -> str:
    resolved = scenario.model_dump(mode="json", exclude=set(CHANGES_NO_RESULT))
    return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()


def _digest_of_starts(start: Start | None) -> str:
    """Leaves out values at their defaults, so that a new option changes no digest."""
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
    check_regular(path, f"start.file '{path}'")
    try:
        with path.open("rb") as weights:
            return hashlib.file_digest(weights, "sha256").hexdigest()
    except OSError:  # running the cell raises the error
        return ""


def cells_of(grid: Grid, out: Path, overrides: Overrides = (), quick: bool = False) -> list[Cell]:
    """Returns every cell that is not skipped, in the grid's order.

    The folder of a cell is `<out>/<grid>/<row>/<column>/seed_<n>`, followed by `task_<k>` in a grid with tasks. Its
    scenario has the title of the cell, and every default.

    Args:
        grid: The grid.
        out: The folder that contains the folder of the grid.
        overrides: Overrides of all cells.
        quick: Applies the [quick] tables of the scenario and of the grid.

    Raises:
        ScenarioError: The scenario of a cell, or one that it starts from, is wrong or names something that does not
            exist; names the cell.
    """
    cells = []
    resolved: dict[tuple[str, str], Scenario] = {}
    starts: set[str] = set()
    digests: dict[str, tuple[str, str]] = {}
    code: dict[tuple[str, str], dict[str, str]] = {}
    for place, scenario in grid.scenarios(overrides, quick).items():
        row, column = place.row, place.column
        try:
            if (row, column) not in resolved:
                _resolve_starts(scenario, starts)
                resolved[row, column] = resolve(scenario)
                code[row, column] = code_digests(with_starts(resolved[row, column]))
        except ScenarioError as error:
            raise ScenarioError(f"grid '{grid.name}', {row} / {column}: {error}") from None
        folder = out / grid.name / folder_of(place)
        title = f"{place.title}: {place}"
        whole = with_place(resolved[row, column], place).model_copy(update={"title": title})
        key = whole.start.model_dump_json() if whole.start else ""
        if key not in digests:
            digests[key] = _digest_of_starts(whole.start), _digest_of_weights(whole.start)
        starts_folder, own_code = out / grid.name / STARTS, code[row, column]
        cells.append(Cell(place, whole, folder, starts_folder, *digests[key], own_code))
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


def check_same_data(runs: Mapping[Cell, FinishedRun]) -> None:
    """Checks that finished runs with the same data settings used the same data.

    Raises:
        DataError: Two of them did not.
    """
    first: dict[str, Cell] = {}
    for cell, run in runs.items():
        data = cell.scenario.data
        # arrays and generated data may depend on all settings
        asked = f"{data.name} {data.source} {data.options}" if run.data_of_files else _asked_for(cell.scenario)
        other = first.setdefault(asked, cell)
        now, before = run.data_found(), runs[other].data_found()
        if now != before:
            raise DataError(
                f"two runs used different data: {other} ({before}) and {cell} ({now}); remove the folder of one, "
                f"'{other.folder}' or '{cell.folder}', to run it again with the data of the other, or choose another "
                "folder with --out"
            )


def check_data_unchanged(finished: Iterable[Cell], remaining: Iterable[Cell], prepared: Prepared) -> None:
    """Compares the digest of data that finished runs share with those to come with the recorded one.

    Does so for one seed, also for the scenarios that cells start from, and loads only what is not prepared.

    Args:
        finished: Finished cells.
        remaining: Cells to be run.
        prepared: Loads the data.

    Raises:
        DataError: The data has changed since, or cannot be loaded any more.
    """
    chains = [with_starts(cell.scenario) for cell in _of_one_seed(remaining)]
    wanted = {_asked_for(scenario, seed=False) for chain in chains for scenario in chain}
    for cell in _of_one_seed(finished):
        for scenario, before in zip(with_starts(cell.scenario), RunArchive(cell.folder).data_digests, strict=False):
            asked = _asked_for(scenario, seed=False)
            if asked not in wanted:
                continue
            wanted.remove(asked)
            now = prepared.digest_before_partition(resolve(scenario))
            if now != before:
                raise DataError(
                    f"{cell}: '{cell.folder}' has a run from before the data '{scenario.data.name}' was changed "
                    f"(sha256 {before[:16]}…, now {now[:16]}…); restore the data, choose another folder with --out, or "
                    "remove the folders of all runs from before the change to run them again"
                )


def _of_one_seed(cells: Iterable[Cell]) -> Iterable[Cell]:
    return {(cell.row, cell.column): cell for cell in cells}.values()


def _asked_for(scenario: Scenario, seed: bool = True) -> str:
    """All settings that determine the samples before they are partitioned, with or without the seed."""
    data = scenario.data
    asked = f"{data.name} {data.source} {data.options} {data.clients} {data.classes} {data.owners}"
    return f"{asked} {scenario.data_seed}" if seed else asked

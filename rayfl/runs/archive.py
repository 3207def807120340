"""`RunArchive`: the records in a run's folder, as everything reads them that a run leaves. Loads no PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rayfl import __version__
from rayfl.config.loader import load_scenario, read_toml
from rayfl.engine.plan.headline import Headline
from rayfl.errors import ResourceError
from rayfl.files import read_json_object, reading
from rayfl.runs.folder import (
    CLIENTS_FILE,
    CONFUSION_FILE,
    ENVIRONMENT_FILE,
    METRICS_FILE,
    MODELS,
    PRIVACY_FILE,
    SCENARIO_FILE,
    SPLIT_FILE,
    model_of_phase,
    no_run_in,
)
from rayfl.runs.status import MODEL, read_status

if TYPE_CHECKING:
    import pyarrow as pa

    from rayfl.config.scenario import Scenario
    from rayfl.data.split_facts import ShownSplit

_SHAPES: Mapping[str, type] = {
    **dict.fromkeys(("packages", "driver", "numerics", "data", "headline", "code"), dict),
    **dict.fromkeys(("hosts", "data.files", "traces"), list),
    **dict.fromkeys(("data.name", "data.source", "data.description", "data.digest", "data.summary"), str),
    **dict.fromkeys(("headline.metric", "headline.on"), str),
}
"""Keys of environment.json that readers look into; a copy may have a part of them."""


class GridPlace(NamedTuple):
    """The place of a run in a grid.

    Attributes:
        title: The heading of the grid's table.
        row: The label of its row.
        column: The label of its column.
        seed: Its seed.
        task: Its task, from 0; None in a grid without tasks.
    """

    title: str
    row: str
    column: str
    seed: int
    task: int | None = None

    def __str__(self) -> str:
        task = "" if self.task is None else f" / task {self.task}"
        return f"{self.row} / {self.column} / seed {self.seed}{task}"


class EarlierFormatError(ResourceError):
    """The records of a run are of a format that rayfl does not read any more."""


class RunArchive:
    """The records of a run; each is read when it is first asked for, and a damaged one is an error that names it.

    Args:
        path: The run's folder.
        where: The run's location for messages, if it is not the folder.
    """

    def __init__(self, path: Path, where: str = "") -> None:
        self.path, self.where = path, where or str(path)

    @property
    def has_begun(self) -> bool:
        """Whether a run has begun in the folder."""
        return any((self.path / name).is_file() for name in (SCENARIO_FILE, METRICS_FILE))

    @cached_property
    def status(self) -> dict[str, Any] | None:
        """The content of status.json, None if there is none; see `read_status`.

        Raises:
            ResourceError: The file is damaged.
        """
        return read_status(self.path)

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The tables of scenario.toml, as they are written.

        Raises:
            ScenarioError: The file is missing or damaged.
        """
        return read_toml(self.path / SCENARIO_FILE)

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario with which the run began, with every default.

        Raises:
            ScenarioError: The file is missing or damaged.
        """
        return load_scenario(self.path / SCENARIO_FILE)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl so far, as they were written; none without the file.

        Raises:
            ResourceError: The file is damaged.
        """
        path = self.path / METRICS_FILE
        if not path.exists():
            return []
        with reading(path, "as lines of JSON", ResourceError):
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]  # a run may be writing
            return [dict(json.loads(line)) for line in whole.split("\n")[:-1]]

    def check_complete(self) -> None:
        """Checks that a finished run has the row of its last round, which every run evaluates, however it ends.

        Raises:
            ResourceError: It does not: the file was truncated.
        """
        if self.status is None or self.status["status"] != "finished":
            return
        with reading(self.path / METRICS_FILE, "as the metrics of a finished run", ResourceError):
            last, ended = max((row["round"] for row in self.rows), default=0), self.status["committed_rounds"]
            if last != ended:
                raise ValueError(f"it ends with round {last}, and the run with round {ended}")

    @cached_property
    def metrics(self) -> pa.Table:
        """The metrics so far, sorted by round.

        The columns are those of `METRICS`, and a float64 column for every score and every reported scalar, in the order
        of metrics.jsonl; values that were not finite or not reported are null.

        Raises:
            ResourceError: The file is damaged.
        """
        import pyarrow as pa  # slow to load, and most readers need the rows alone

        from rayfl.engine.columns import METRICS

        names = dict.fromkeys(name for row in self.rows for name in row) or METRICS.names
        known = {field.name: field.type for field in METRICS}
        with reading(self.path / METRICS_FILE, "as metrics", ResourceError):
            schema = pa.schema([(name, known.get(name, pa.float64())) for name in names])
            return pa.Table.from_pylist(self.rows, schema=schema).sort_by("round")

    @cached_property
    def scores_of_clients(self) -> pa.Table | None:
        """The rows of clients.parquet with scores in the last round that has any; None without such a round.

        Other rows are not kept, so that memory grows with the clients and not with the rounds.

        Raises:
            DataError: The file is damaged.
        """
        import pyarrow.compute as pc  # slow to load
        import pyarrow.parquet as pq

        path = self.path / CLIENTS_FILE
        if not path.is_file():
            return None
        with reading(path, "as Parquet"):
            last = None
            with pq.ParquetFile(path) as file:
                for number in range(file.num_row_groups):
                    group = file.read_row_group(number, columns=["round", "set"])
                    of_group = pc.max(group.filter(pc.is_valid(group["set"]))["round"]).as_py()
                    last = of_group if last is None else max(last, of_group or last)
            if last is None:
                return None
            return pq.read_table(path, filters=pc.is_valid(pc.field("set")) & (pc.field("round") == last))

    @cached_property
    def privacy(self) -> dict[str, Any] | None:
        """The guarantees of the run: the content of privacy.json; None without the file.

        Raises:
            ResourceError: The file is damaged.
        """
        return self._json(PRIVACY_FILE)

    @cached_property
    def confusion(self) -> dict[str, Any] | None:
        """The last confusion matrix: `phase`, `round` and `samples`, by label and predicted class; None without one.

        Raises:
            ResourceError: The file is damaged.
        """
        if (content := self._json(CONFUSION_FILE)) is None:
            return None
        with reading(self.path / CONFUSION_FILE, "as a confusion matrix", ResourceError):
            rows = [[int(number) for number in row] for row in content["samples"]]
            if not rows or any(len(row) != len(rows) for row in rows):
                raise ValueError("it is not square")
            return {"phase": str(content["phase"]), "round": int(content["round"]), "samples": rows}

    @cached_property
    def split(self) -> ShownSplit | None:
        """The samples and classes of at most 200 clients; None where they were not recorded.

        Raises:
            ResourceError: The file is damaged.
        """
        from rayfl.data.split_facts import ShownSplit  # loads numpy

        if (content := self._json(SPLIT_FILE)) is None:
            return None
        with reading(self.path / SPLIT_FILE, "as a split", ResourceError):
            return ShownSplit(**content)

    def _json(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        return read_json_object(path, ResourceError) if path.exists() else None

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The content of environment.json.

        Raises:
            ResourceError: The file is missing or damaged.
            EarlierFormatError: It does not have the run's place in a grid, which earlier versions did not record.
        """
        path = self.path / ENVIRONMENT_FILE
        content = read_json_object(path, ResourceError)
        with self._reading_environment():
            if "place" not in content:
                raise EarlierFormatError(
                    f"'{self.where}': rayfl {content['packages']['rayfl']} wrote these records in an earlier format, "
                    f"which this rayfl {__version__} does not read: use that one, or run the scenario again"
                )
            for key, kind in _SHAPES.items():
                table, _, last = key.rpartition(".")
                values = content.get(table, {}) if table else content
                if last in values and not isinstance(values[last], kind):
                    raise TypeError(f"{key} is {values[last]!r}")
                if kind is list and not all(isinstance(item, dict) for item in values.get(last, ())):
                    raise TypeError(f"{key} holds other values than tables")
        return content

    def check_format(self) -> None:
        """Checks that the records are of no earlier format; a damaged environment.json does not tell.

        Raises:
            EarlierFormatError: They are.
        """
        try:
            _ = self.environment
        except EarlierFormatError:
            raise
        except ResourceError:
            return

    def scenario_to_resume(self) -> Path:
        """The file with the resolved scenario.

        Raises:
            ResourceError: The folder has no run, or one whose records are of an earlier format.
        """
        path = self.path / SCENARIO_FILE
        if not path.is_file():
            raise no_run_in(self.where)
        self.check_format()
        return path

    @property
    def place(self) -> GridPlace | None:
        """Its place in a grid; None outside grids."""
        with self._reading_environment():
            place = self.environment["place"]
            return None if place is None else GridPlace(**place)

    @property
    def headline(self) -> Headline:
        """The metric that ranks rounds."""
        with self._reading_environment():
            return Headline.from_record(self.environment["headline"])

    @property
    def version(self) -> str:
        """The version of rayfl that wrote the records."""
        with self._reading_environment():
            return str(self.environment["packages"]["rayfl"])

    @property
    def device(self) -> str:
        """The kind of device on which it ran: `cpu` or `cuda`."""
        with self._reading_environment():
            return str(self.environment["hosts"][0]["device"]).partition(":")[0]

    @property
    def code(self) -> Mapping[str, str]:
        """Digests of the user's modules and versions of installed packages, including those of its starts."""
        with self._reading_environment():
            return dict(self.environment["code"])

    @property
    def data_digests(self) -> Sequence[str]:
        """The digest of its data, then of the data of the scenario that it starts from, and so on."""
        with self._reading_environment():
            start = self.environment["start"] or {}
            return [self.environment["data"]["digest"], *start.get("data", ())]

    @property
    def trace_digests(self) -> Sequence[str]:
        """The digests of the files that [participation] names."""
        with self._reading_environment():
            return [trace["sha256"] for trace in self.environment["traces"]]

    @property
    def weights(self) -> Sequence[str]:
        """How each phase's 4-D weights are stored."""
        with self._reading_environment():
            return [phase["model"]["weights"] for phase in self.environment["phases"]]

    @property
    def model(self) -> Path:
        """The file with the final model, or the model of the last committed round."""
        return self.path / MODEL

    @cached_property
    def models(self) -> dict[int, Path]:
        """The models that were kept, by round: of the ends of phases, the final one, and those of `periodic_model`."""
        phases = self.scenario.phases
        names = [model_of_phase(number, phase.name) for number, phase in enumerate(phases)]
        lasts = accumulate(phase.rounds for phase in phases)
        ends = {round: self.path / name for round, name in zip(lasts, names, strict=True)}
        if self.status:
            ends[self.status["committed_rounds"]] = self.model
        existing = {round: file for round, file in ends.items() if round and file.is_file()}
        regular = {int(file.stem.removeprefix("round_")): file for file in (self.path / MODELS).glob("round_*")}
        return dict(sorted({**existing, **regular}.items()))

    @contextmanager
    def _reading_environment(self) -> Iterator[None]:
        with reading(self.path / ENVIRONMENT_FILE, "as the environment of a run", ResourceError):
            yield

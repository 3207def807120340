"""`rayfl.compare`: tables of finished runs and grids, for papers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args, overload

import pyarrow as pa

from rayfl.config.registry import nearest
from rayfl.console import TextTable
from rayfl.engine.plan.headline import check_target
from rayfl.errors import ScenarioError
from rayfl.files import reading
from rayfl.runs.figures.quantities import asked
from rayfl.runs.figures.recorded_run import RecordedRun
from rayfl.studies.figures.client_comparison import ClientComparison, compare_clients
from rayfl.studies.figures.clients import By, check_idle_with_clients
from rayfl.studies.figures.compared_groups import (
    Compared,
    ComparedGroup,
    ComparisonOptions,
    check_metrics,
    check_reference,
    compared,
    table_of,
    table_of_runs,
)
from rayfl.studies.figures.groups import Panels, Recorded, Source, arranged
from rayfl.studies.figures.scores import TARGET_COSTS, At, check_round
from rayfl.studies.statistics import check_smoothing
from rayfl.studies.tables import ShownPage, TablePage

SCHEMA = pa.schema(
    [
        ("metric", pa.string()),
        ("panel", pa.string()),
        ("label", pa.string()),
        ("mean", pa.float64()),
        ("deviation", pa.float64()),
        ("repetitions", pa.int64()),
        ("best", pa.bool_()),
        ("reference", pa.string()),
        ("difference", pa.float64()),
        ("margin", pa.float64()),
        ("pairs", pa.int64()),
        ("runs", pa.int64()),
        ("target", pa.float64()),
        ("reached", pa.int64()),
        *((f"{cost.name}_to_target", pa.float64()) for cost in TARGET_COSTS),
    ]
)
"""Columns of `Comparison.table`."""


@overload
def compare(
    *sources: Source,
    reference: str | None = ...,
    metrics: str | Iterable[str] = ...,
    at: At = ...,
    target: float | None = ...,
    smooth: int = ...,
    labels: Sequence[str] = ...,
    panels: Panels = ...,
    list_runs: bool = ...,
    by: None = None,
) -> Comparison: ...


@overload
def compare(
    *sources: Source,
    reference: str | None = ...,
    metrics: str | Iterable[str] = ...,
    labels: Sequence[str] = ...,
    panels: Panels = ...,
    by: By,
) -> ClientComparison: ...


def compare(
    *sources: Source,
    reference: str | None = None,
    metrics: str | Iterable[str] = (),
    at: At = "last",
    target: float | None = None,
    smooth: int = 1,
    labels: Sequence[str] = (),
    panels: Panels = "columns",
    list_runs: bool = False,
    by: By | None = None,
) -> Comparison | ClientComparison:
    """Compares finished runs and grids.

    Runs that differ in their seed alone form a group, as do the runs of a cell of a grid. Groups are compared by the
    mean over their seeds, or over the tasks of a grid, each averaged over its seeds. Differences are paired: each run
    is compared with the run of the reference that has the same seed and task.

    Args:
        *sources: Folders of runs and grids, or what `rayfl.run` and `rayfl.grid` returned.
        reference: Label of the group that the others are compared with; by default, the first.
        metrics: Columns of metrics.jsonl; by default, the headline metric.
        at: Which rounds scores are taken from: `last`, `best` (the round with the best headline metric),
            `mean_last_5`, or the number of an evaluated round.
        target: A score, in the unit of the records: 0.6 for 60 %. Tables of the first metric then say how many runs
            reached it, after how many rounds, client updates, bytes and transfers, and at which epsilon and simulated
            time.
        smooth: An odd number of evaluated rounds. Curves are averaged first over a centred window of this width, within
            a phase. The last round of a phase keeps its value.
        labels: Other labels for the groups, in their order; by default titles of scenarios and rows of grids.
        panels: Which parts of a grid get their own table: its `columns`, in which rows are compared, or its `rows`, in
            which columns are compared.
        list_runs: Whether a table of all runs follows, with the best round, last rounds and last round of each.
        by: `client` compares single clients instead, paired by owner or number, by the last scores that runs recorded
            of them (`evaluation.per_client`): at most 20, those with the largest changes up and down. `metrics` are
            then those of clients.parquet, such as `accuracy`, or `validation_accuracy` of another set of samples.

    Returns:
        The comparison: a table for every metric and every panel.

    Raises:
        DataError: A folder holds nothing that has finished.
        ResourceError: Records are damaged.
        ScenarioError: Labels, metrics or rounds are not known, nothing can be paired with the reference, or smoothing
            has no effect.

    Example:
        >>> import rayfl
        >>> def run(cohort, seed):
        ...     scenario = {
        ...         "name": "tiny",
        ...         "seed": seed,
        ...         "data": {"name": "handwriting", "clients": 4},
        ...         "model": "mlp",
        ...         "phases": [{"schedule": "parallel", "rounds": 2, "cohort": cohort}],
        ...     }
        ...     return rayfl.run(scenario, backend="inline", quiet=True)
        >>> results = [run(cohort, seed) for cohort in (1, 4) for seed in (0, 1)]
        >>> comparison = rayfl.compare(*results, labels=["one client", "all clients"], target=0.05)
        >>> comparison
        Test accuracy in %, after the last round; mean ± sample standard deviation over 2 seeds; ...
        >>> comparison.table.select(["label", "pairs"]).to_pylist()
        [{'label': 'one client', 'pairs': None}, {'label': 'all clients', 'pairs': 2}]
        >>> print(comparison.latex)
        % needs \\usepackage{booktabs} in the preamble
        ...
    """
    check_smoothing(smooth)
    recorded = arranged(sources, panels, labels)
    if by is not None:
        if by not in get_args(By):
            raise ScenarioError(f"by: there is no '{by}'; {nearest(by, get_args(By))}")
        check_idle_with_clients(
            at=(at, "last"), target=(target, None), smooth=(smooth, 1), list_runs=(list_runs, False)
        )
        return compare_clients(recorded, asked(metrics), check_reference(recorded, reference))
    names = check_metrics(recorded, asked(metrics))
    check_round(recorded.runs, at)
    if smooth > 1 and at == "last" and target is None and not list_runs:
        raise ScenarioError("smooth: has no effect on the score after the last round; use at = 'mean_last_5' or 'best'")
    if target is not None:
        for run in recorded.runs:
            if names[0] in run.columns:
                check_target(target, names[0], run.headline)
    choice = ComparisonOptions(at, smooth, check_reference(recorded, reference), target)
    parts = [
        part
        for place, metric in enumerate(names)
        for part in compared(recorded, metric, choice if place == 0 else choice._replace(target=None))
    ]
    return Comparison(recorded, choice, tuple(parts), list_runs)


@dataclass(frozen=True, repr=False)
class Comparison(ShownPage):
    """Runs and grids compared; made by `rayfl.compare`. A notebook shows its tables.

    Attributes:
        recorded: The compared runs.
        choice: How they were compared.
        parts: A comparison for every metric and every column of a grid.
        list_runs: Whether all runs are listed too.

    Example:
        >>> import rayfl
        >>> scenario = {
        ...     "name": "tiny",
        ...     "data": {"name": "handwriting", "clients": 4},
        ...     "model": "mlp",
        ...     "phases": [{"schedule": "parallel", "rounds": 1, "cohort": 2}],
        ... }
        >>> comparison = rayfl.compare(rayfl.run(scenario, backend="inline", quiet=True))
        >>> comparison.table["mean"].to_pylist()
        [0...]
        >>> print(comparison.markdown)
        Test accuracy in %, after the last round; one seed.
        ...
    """

    recorded: Recorded
    choice: ComparisonOptions
    parts: tuple[Compared, ...]
    list_runs: bool = False

    @property
    def table(self) -> pa.Table:
        """One row for every metric, column of a grid and group, in the units of the records; see `SCHEMA`.

        `margin` is half the width of the 95 % t-interval around `difference`, null for a single pair. Costs of the
        target are means over the runs that reached it.
        """
        rows = [_row(part, line, self.choice) for part in self.parts for line in part.lines]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    @cached_property
    def text_tables(self) -> list[TextTable]:
        """The tables as texts."""
        metrics = dict.fromkeys(part.metric for part in self.parts) if self.list_runs else ()
        return [
            *(table_of(part, self.choice) for part in self.parts),
            *(table_of_runs(self.recorded.groups, metric, self.choice.window) for metric in metrics),
        ]

    @cached_property
    def notes(self) -> list[str]:
        """Sentences below the tables: the data, the runs that are left out, and versions that differ."""
        lines = [line for part in self.parts for line in part.lines]
        single = any(line.difference and line.difference.margin is None for line in lines)
        return [
            *(["A single pair has no interval: run more seeds or tasks to get one."] if single else []),
            *(f"{note}." for note in self.recorded.notes),
            f"Data: {'; '.join(note.text for note in self.recorded.data)}.",
            *version_notes(self.recorded.runs),
        ]

    @property
    def page(self) -> TablePage:
        """The tables and the notes."""
        return TablePage(self.text_tables, self.notes)


def _row(part: Compared, line: ComparedGroup, choice: ComparisonOptions) -> dict[str, Any]:
    score, difference, reached = line.score, line.difference, line.reached
    return {
        "metric": part.metric,
        "panel": part.panel,
        "label": line.group.label,
        "mean": score and score.mean,
        "deviation": score and score.deviation,
        "repetitions": score.repetitions if score else 0,
        "best": None if part.best is None else score is not None and score.mean == part.best,
        "reference": choice.reference,
        "difference": difference and difference.mean,
        "margin": difference and difference.margin,
        "pairs": difference and difference.repetitions,
        "runs": len(line.group.runs),
        "target": choice.target if reached else None,
        "reached": reached and reached.count,
        **({f"{cost.name}_to_target": reached.mean(cost.name) for cost in TARGET_COSTS} if reached else {}),
    }


def version_notes(runs: Sequence[RecordedRun]) -> list[str]:
    """A sentence for every module and every data set of which the records name more than one version.

    Raises:
        DataError: The records of a run's code or data are damaged.
    """
    versions: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        with reading(run.where, "as the records of a finished run"):
            for of, digest in _digests(run):
                versions.setdefault(of, {}).setdefault(digest, []).append(run.where)
    return [
        f"Different versions of the {what}: {' | '.join(', '.join(folders) for folders in by_digest.values())}."
        for (what, _), by_digest in versions.items()
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

"""The page of one run, whether it has finished or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rayfl import __version__
from rayfl.console import TextTable
from rayfl.engine.plan.headline import PART, is_part
from rayfl.errors import DataError, ResourceError
from rayfl.files import reading
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.client_scores import ClientScores, scores_by_set, table_of_clients
from rayfl.runs.figures.quantities import quantity_of
from rayfl.runs.figures.recorded_run import DataNote, RecordedRun, read_so_far
from rayfl.runs.folder import ENVIRONMENT_FILE, SCENARIO_FILE, SPLIT_FILE
from rayfl.runs.status import STATUS, UNDER_WAY
from rayfl.studies.figures.groups import Group, Recorded
from rayfl.studies.figures.page.sections import (
    RENEWED_S,
    Page,
    PageSection,
    Picture,
    client_dots,
    confusion_map,
    curves,
    environment_section,
    histogram,
    privacy_section,
    run_curves,
    shown,
    split_picture,
    split_texts,
    statistics_over_clients,
)
from rayfl.studies.figures.scores import higher_is_better
from rayfl.studies.grid.results import TAIL
from rayfl.wording import duration


def run_page(folder: Path, follow: bool) -> Page:
    """Reads a run's folder.

    Args:
        folder: The run's folder.
        follow: Whether the page will be written again while the run is under way, so that a browser renews it.

    Raises:
        DataError: Its scenario is damaged.
        ResourceError: Other records are damaged.
    """
    archive = RunArchive(folder)
    scenario = archive.tables
    # it is written once the workers are ready
    environment = archive.environment if (folder / ENVIRONMENT_FILE).exists() else {}
    archive.check_complete()
    run = read_so_far(archive) if archive.rows else None
    status = archive.status or {"status": "incomplete"}
    scores = [] if run is None else scores_by_set(archive, run.headline)
    data = environment.get("data") or {"name": scenario["data"]["name"], "source": ""}
    note = DataNote(data["name"], data["source"])
    sections = [
        _results(run),
        *_curves(run),
        *_classes(archive, run),
        _split(archive, scenario, environment, scores),
        _fairness(run, scores),
    ]
    sections.append(_privacy(archive, run))
    sections.append(environment_section([environment], [int(scenario.get("seed", 0))]))
    text = (folder / SCENARIO_FILE).read_text(encoding="utf-8")
    sections.append(
        PageSection("Scenario", ["Every key of the scenario as it ran, with defaults written out."], code=text)
    )
    title = str(scenario.get("title") or scenario.get("name", folder.name))
    with reading(folder / STATUS, "as the status of a run"):
        under_way = status["status"] in UNDER_WAY
        reason = _progress(status, run) if under_way else _reason(status)
        renewed_s = RENEWED_S if follow and under_way else 0
        return Page(title, status["status"], reason, note.text, sections, __version__, renewed_s)


def _progress(status: Mapping[str, Any], run: RecordedRun | None) -> str:
    """Round and time left, by the pace since the first round of the current phase."""
    done, rounds = status["committed_rounds"], status["rounds"]
    place = f"round {done} of {rounds}" + (f", phase {status['phase']}" if status["phase"] else "")
    if run is None or "seconds" not in run.columns:
        return status["reason"] or place
    spent, of_phase = run.columns["seconds"], np.asarray(run.phase_names) == run.phase_names[-1]
    before = np.flatnonzero(~of_phase)[-1:]  # the last evaluation of the phase before
    first_round, first_s = (run.rounds[before[0]], spent[before[0]]) if len(before) else (0, 0.0)
    left = (rounds - done) * (spent[-1] - first_s) / (run.rounds[-1] - first_round)
    return f"{place}; about {duration(float(left))} left"


def _reason(status: Mapping[str, Any]) -> str:
    parts = [str(status["reason"])] if status.get("reason") else []
    if stopped := status.get("stopped"):
        parts.append(f"{stopped['callback']} ended it after round {stopped['round']} ({stopped['reason']})")
    if status.get("rounds"):
        parts.append(f"{status['committed_rounds']} of {status['rounds']} rounds are done")
    return "; ".join(parts)


def _results(run: RecordedRun | None) -> PageSection:
    if run is None:
        return PageSection("Results", ["No round was evaluated."])
    headline = run.headline
    rows = []
    if headline.reported in run.columns:
        quantity = quantity_of([run], headline.reported)
        scores, rounds = run.values(headline.reported)[run.ranked], run.rounds[run.ranked]
        chosen = run.columns.get(headline.column, run.columns[headline.reported])[run.ranked]
        if np.isfinite(chosen).any():
            best = headline.best(list(chosen))
            where = "" if headline.on == "test" else f", chosen by {headline.words}"
            rows.append([f"{quantity.words}, best", shown(scores[best], quantity), f"round {rounds[best]}{where}"])
        if len(scores):
            rows.append([f"{quantity.words}, last", shown(scores[-1], quantity), f"round {rounds[-1]}"])
            tail = scores[-TAIL:]
            rows.append(
                [f"{quantity.words}, mean", shown(float(tail.mean()), quantity), f"last {len(tail)} evaluations"]
            )
    last = f"round {run.rounds[-1]}"
    if "seconds" in run.columns:
        rows.append(["time of the rounds", duration(float(run.columns["seconds"][-1])), f"up to {last}"])
    if "bytes" in run.columns:
        rows.append(["traffic", f"{run.columns['bytes'][-1] / 1e6:,.1f} MB", f"up to {last}"])
    return PageSection("Results", tables=[TextTable("", ["", "value", "at"], rows), _all_scores(run)])


def _all_scores(run: RecordedRun) -> TextTable:
    """Last and best values of every metric and loss; without the best where the direction is not known."""
    rows = []
    for column in (*run.scores, *(name for name in ("train_loss",) if name in run.columns)):
        quantity, values, higher = quantity_of([run], column), run.values(column), higher_is_better(column, [run])
        finite = np.where(np.isfinite(values), values, np.nan)
        if np.isfinite(finite[run.ranked]).any():  # a loss of another task is no best
            finite[~run.ranked] = np.nan
        best = ["", ""]
        if higher is not None and not np.isnan(finite).all():
            place = int(np.nanargmax(finite) if higher else np.nanargmin(finite))
            best = [shown(values[place], quantity), f"round {run.rounds[place]}"]
        rows.append([quantity.words, shown(values[-1], quantity), *best])
    caption = f"Every metric and loss: after round {run.rounds[-1]}, and in the round where it is best"
    return TextTable(caption, ["", "last", "best", "best in"], rows)


def _curves(run: RecordedRun | None) -> list[PageSection]:
    if run is None:
        return []
    try:
        return [PageSection("Learning curves", pictures=[run_curves(run, "Metrics and losses by round")])]
    except DataError:
        return [PageSection("Learning curves", ["No recorded value is finite, so there is nothing to draw."])]


def _classes(archive: RunArchive, run: RecordedRun | None) -> list[PageSection]:
    """The confusion matrix, and the last scores of every class; nothing where no metric reports classes."""
    if run is None or (confusion := archive.confusion) is None:
        return []
    caption = f"Test samples of each class by predicted class, after round {confusion['round']}"
    scores: dict[str, dict[str, str]] = {}
    for column in (name for name in run.columns if is_part(name, run.columns)):
        whole, _, label = column.partition(PART)
        scores.setdefault(whole, {})[label] = shown(run.columns[column][-1], quantity_of([run], column))
    labels = dict.fromkeys(label for by_class in scores.values() for label in by_class)
    rows = [[f"class {label}", *(by_class.get(label, "") for by_class in scores.values())] for label in labels]
    header = ["", *(quantity_of([run], whole).words for whole in scores)]
    table = TextTable(f"Scores of every class after round {run.rounds[-1]}", header, rows)
    return [PageSection("Classes", pictures=[confusion_map(confusion["samples"], caption)], tables=[table])]


def _alone(run: RecordedRun) -> Recorded:
    return Recorded((Group(run.row, "", (run,)),))


def _split(
    archive: RunArchive, scenario: Mapping[str, Any], environment: Mapping[str, Any], scores: Sequence[ClientScores]
) -> PageSection:
    texts, pictures = split_texts(scenario, environment), []
    if (split := archive.split) is not None:
        with reading(archive.path / SPLIT_FILE, "as a split", ResourceError):
            pictures.append(split_picture(split))
        return PageSection("Split among clients", texts, pictures)
    for of in scores:
        words = of.set.replace("_", " ")
        pictures.append(histogram(of.samples, f"{words} samples", f"Clients by their number of {words} samples"))
    if not scores:
        texts.append("The samples of single clients were not recorded. rayfl data SCENARIO draws the split.")
    return PageSection("Split among clients", texts, pictures)


def _fairness(run: RecordedRun | None, scores: Sequence[ClientScores]) -> PageSection:
    if run is None:
        return PageSection("Fairness over clients", ["Not recorded: no round was evaluated."])
    tables: list[TextTable] = []
    pictures: list[Picture] = []
    spreads: list[list[str]] = []
    recorded = _alone(run)
    if statistics := statistics_over_clients(recorded):
        rows = []
        for name in statistics:
            quantity = quantity_of([run], name)
            rows.append([quantity.words, shown(run.columns[name][-1], quantity)])
        tables.append(TextTable(f"Statistics over clients after round {run.rounds[-1]}", ["", "value"], rows))
    for of in scores:
        values, quantity = of.values[of.ranking], of.quantity(of.headline.metric)
        if not len(values):
            continue
        caption = f"Clients by their {quantity.words} after round {of.round}, and over their numbers of samples"
        pictures.append(client_dots(of, caption))
        spread = quantity.factor * np.array([*np.percentile(values, [0, 10, 50, 90, 100]), values.mean()])
        spreads.append([quantity.label.lower(), str(len(values)), *(f"{value:.4g}" for value in spread)])
    if spreads:
        header = ["", "clients", "least", "10th percentile", "median", "90th percentile", "most", "mean"]
        tables.append(TextTable(f"Scores of single clients after round {scores[0].round}", header, spreads))
        tables.append(table_of_clients(scores[0]))
    if not tables:
        text = "Not recorded. evaluation.over_clients adds statistics over clients, evaluation.per_client every score."
        return PageSection("Fairness over clients", [text])
    return PageSection("Fairness over clients", pictures=pictures, tables=tables)


def _privacy(archive: RunArchive, run: RecordedRun | None) -> PageSection:
    if archive.privacy is None:
        phases = archive.tables.get("phases", [])
        private = any("dp" in phase or "dp" in phase.get("local", {}) for phase in phases)
        text = (
            "trains with differential privacy, but has not stated its guarantee yet"
            if private
            else "uses no differential privacy, and states no guarantee"
        )
        return PageSection("Privacy", [f"The run {text}."])
    section = privacy_section(archive)
    columns = {} if run is None else run.columns
    if run is None or not {"epsilon", "client_epsilon"} & columns.keys() or run.headline.reported not in columns:
        return section
    spent = columns["client_epsilon" if "client_epsilon" in columns else "epsilon"]
    if not (np.isfinite(spent) & np.isfinite(run.values(run.headline.reported))).any():
        return section
    picture = curves(_alone(run), [run.headline.reported], "The result by the ε spent for it", "epsilon")
    return PageSection(section.title, section.texts, [picture, *section.pictures], section.tables, section.points)

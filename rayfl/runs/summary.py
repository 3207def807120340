"""The table at the end of a run: results and cost of each phase."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.filesize import decimal

from rayfl.console import TextTable, print_line
from rayfl.engine.events import Evaluated, Event, RoundDone
from rayfl.engine.plain_events import (
    evaluation_from,
    numbers_from,
    plain_evaluation,
    plain_numbers,
    plain_round,
    round_from,
)
from rayfl.engine.plan.headline import Headline, is_part, words_of
from rayfl.engine.totals import Simulated, Traffic
from rayfl.runs.figures.client_scores import MOST_ROWS, ClientScores, line_of_clients, table_of_clients
from rayfl.wording import duration

ABSENT = "–"


@dataclass
class _Phase:
    last_round: RoundDone | None = None
    last: Evaluated | None = None
    best: Evaluated | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    """The latest value of every reported scalar."""

    def state(self) -> dict[str, Any]:
        done = self.last_round and replace(self.last_round, client_scalars=(), spent={}, left_out=())
        return {
            "last_round": done and plain_round(done),
            "last": self.last and plain_evaluation(self.last),
            "best": self.best and plain_evaluation(self.best),
            "scalars": plain_numbers(self.scalars),
        }

    @staticmethod
    def restored(state: Mapping[str, Any]) -> _Phase:
        return _Phase(
            state["last_round"] and round_from(state["last_round"]),
            state["last"] and evaluation_from(state["last"]),
            state["best"] and evaluation_from(state["best"]),
            numbers_from(state["scalars"]),
        )


class EndSummary:
    """Collects a few events of each phase and prints the result.

    Args:
        headlines: The metric that ranks the rounds of each phase.
    """

    def __init__(self, headlines: Mapping[str, Headline]) -> None:
        self._headlines = headlines
        self._phases: dict[str, _Phase] = {}

    def add(self, event: Event) -> None:
        """Takes in one event."""
        match event:
            case RoundDone():
                phase = self._phases.setdefault(event.phase, _Phase())
                phase.last_round = event
                phase.scalars.update(event.scalars)
            case Evaluated():
                phase = self._phases.setdefault(event.phase, _Phase())
                if phase.last is None or event.round > phase.last.round:
                    phase.last = event
                headline = self._headlines[event.phase]
                if _ranked(event, headline) is None:
                    return
                if phase.best is None or headline.best([_ranked(phase.best, headline), _ranked(event, headline)]):
                    phase.best = event

    def state(self) -> dict[str, Any]:
        return {name: phase.state() for name, phase in self._phases.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._phases = {name: _Phase.restored(phase) for name, phase in state.items()}

    def show(
        self,
        console: Console,
        where: str,
        privacy: str = "",
        clients: Sequence[ClientScores] = (),
        list_clients: bool = False,
    ) -> None:
        """Prints a column for every phase that committed a round, and below the table the place of the records.

        Model transfers, traffic and time are those of the phase alone. Next to the best headline value is the first
        round that reached it, counted through the whole scenario. The latest values of reported scalars follow.

        Args:
            console: Where to print.
            where: The folder of the run, or its URI.
            privacy: One or two lines on the privacy spent.
            clients: The last scores of single clients on every set of samples; each set has a line.
            list_clients: Whether a table lists the clients of the first set, or the best and worst of many.
        """
        columns = dict(self._columns())
        labels = dict.fromkeys(label for cells in columns.values() for label in cells)
        rows = [[label, *(cells.get(label, ABSENT) for cells in columns.values())] for label in labels]
        for part in TextTable("", ["", *columns], rows).fitted(console.width):
            console.print(part.rich())
        for line in filter(None, map(line_of_clients, clients)):
            print_line(console, f"clients: {line}")
        if clients and list_clients:
            listed = table_of_clients(clients[0], MOST_ROWS if len(clients[0]) <= MOST_ROWS else MOST_ROWS // 2)
            listed.show(console)
        if privacy:
            print_line(console, privacy)
        print_line(console, "records: ", (where, "bold"))

    def _columns(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Every phase that committed a round, with its cells by label."""
        before, started, simulated = Traffic(), 0.0, Simulated(joules=0.0)
        for name, phase in self._phases.items():
            headline, done, last, best = self._headlines[name], phase.last_round, phase.last, phase.best
            if done is None:
                continue
            cells = {
                "rounds": f"{done.round_in_phase:,}",
                headline.words: headline.text(_ranked(last, headline)) if last else ABSENT,
                f"best {headline.words}": headline.text(_ranked(best, headline)) if best else ABSENT,
                "reached in round": f"{best.round:,}" if best else ABSENT,
                **_chosen_elsewhere(best, headline),
                **_other_scores(last, headline),
                "model transfers": f"{done.traffic.transfers - before.transfers:,}",
                "traffic": decimal(done.traffic.bytes - before.bytes),
                "time": duration(done.seconds - started),
                **_simulated(done.simulated, simulated),
            }
            yield name, cells | {words_of(scalar): f"{value:.4g}" for scalar, value in phase.scalars.items()}
            before, started, simulated = done.traffic, done.seconds, done.simulated or simulated


def _simulated(now: Simulated | None, before: Simulated) -> dict[str, str]:
    """Totals of a phase of a scenario with [participation]."""
    if now is None:
        return {}
    energy = {} if now.joules is None else {"energy": f"{now.joules - (before.joules or 0.0):,.4g} J"}
    shares = {
        "clients' transfer": (now.transfer, before.transfer),
        "clients' training": (now.training, before.training),
    }
    split = {name: duration(total - (was or 0.0)) for name, (total, was) in shares.items() if total is not None}
    return {
        "simulated time": duration(now.seconds - before.seconds),
        **split,
        **energy,
        "unavailable clients": f"{now.unavailable - before.unavailable:,}",
        "dropped updates": f"{now.dropped - before.dropped:,}",
        "late updates": f"{now.late - before.late:,}",
    }


def _ranked(evaluated: Evaluated, headline: Headline) -> float | None:
    return evaluated.scores[headline.column]


def _chosen_elsewhere(best: Evaluated | None, headline: Headline) -> dict[str, str]:
    """The result on the test samples, if the best round is chosen on others."""
    if best is None or headline.column == headline.reported:
        return {}
    return {f"{headline.reported_words} in that round": headline.text(best.scores[headline.reported])}


def _other_scores(last: Evaluated | None, headline: Headline) -> dict[str, str]:
    """The other scores, without those of single classes, and losses that do not exist on a task's test samples."""
    scores = {} if last is None else last.scores
    return {
        words_of(name): headline.column_text(name, value)
        for name, value in scores.items()
        if name != headline.column
        and not is_part(name, scores)
        and not (name.endswith("_loss") and (value is None or math.isnan(value)))
    }

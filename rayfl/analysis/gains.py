"""Splits the gain in accuracy of a round into the gains of local training and of aggregation.

FPS, section 6: A(mean_t) = A(mean_(t-1)) + [sum_m p_m A(local_m) - A(mean_(t-1))] + [A(mean_t) - sum_m p_m A(local_m)],
with the local and the global gain in brackets. A negative local gain means that clients drift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from matplotlib.figure import Figure

from rayfl.analysis.analysis import Row, by_run
from rayfl.analysis.evaluator import Evaluator
from rayfl.analysis.of_rounds import OfRounds
from rayfl.analysis.opened_run import OpenedRun
from rayfl.analysis.picture import BLUE, DARK, ORANGE, as_share, mark_phases, marker, names_of, new_figure, tidy
from rayfl.analysis.replay import ReplayedRound
from rayfl.analysis.run_folder import RunFolder


class Gains(OfRounds):
    """Local and global gain of every round."""

    title: ClassVar[str] = "Gains of local training and aggregation in a round"

    def evaluations(self, clients: float) -> float:
        return clients + 2

    def rows(self, replayed: ReplayedRound, evaluator: Evaluator, run: OpenedRun) -> list[Row]:
        before, after = evaluator.score(replayed.before), evaluator.score(replayed.after)
        each = [evaluator.score(model) for model in replayed.models]
        local = sum(weight * one.metric for weight, one in zip(replayed.weights, each, strict=True))
        return [
            {
                "before": before.metric,
                "mean_local": float(local),
                "after": after.metric,
                "local_gain": float(local - before.metric),
                "global_gain": float(after.metric - local),
                "loss_before": before.loss,
                "mean_local_loss": float(sum(w * one.loss for w, one in zip(replayed.weights, each, strict=True))),
                "loss_after": after.loss,
                "clients": len(each),
            }
        ]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        figure = new_figure(self.title, runs, max(6.4, 4.6 * len(runs)), 6)
        panels = figure.subplots(2, len(runs), sharex="col", sharey="row", squeeze=False)
        for number, (run, name, own) in enumerate(zip(runs, names_of(runs), by_run(rows, runs), strict=True)):
            upper, lower = panels[0][number], panels[1][number]
            rounds, style = [row["round"] for row in own], marker(len(own))
            upper.plot(rounds, [row["after"] for row in own], color=DARK, label="averaged model", **style)
            upper.plot(rounds, [row["mean_local"] for row in own], color=ORANGE, label="mean of local models", **style)
            lower.plot(rounds, [row["local_gain"] for row in own], color=ORANGE, label="local gain", **style)
            lower.plot(rounds, [row["global_gain"] for row in own], color=BLUE, label="global gain", **style)
            lower.axhline(0, color=DARK, linewidth=0.8)
            tidy(upper, ylabel="" if number else run.headline.reported_words, title=name)
            tidy(lower, "round", "" if number else _gain_words(run), whole_x=True)
            as_share(upper, run.headline)
            as_share(lower, run.headline, signed=True)
            mark_phases(upper, run)
            mark_phases(lower, run)
        panels[0][0].legend(fontsize=9, framealpha=0.9)
        panels[1][0].legend(fontsize=9, framealpha=0.9)
        return figure

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        found = []
        for name, own in zip(names_of(runs), by_run(rows, runs), strict=True):
            local, whole = (sum(row[key] for row in own) / len(own) for key in ("local_gain", "global_gain"))
            found.append(f"gains    {name}: mean local gain per round {local:+.4f}, global gain {whole:+.4f}")
        return found


def _gain_words(run: RunFolder) -> str:
    return "gain in percentage points" if run.headline.is_share else f"gain in {run.headline.reported_words}"

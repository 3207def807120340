"""How well labels transfer from the clients of a relay to all clients: kappa, by the neural tangent kernel.

CyclicFL (first version), section III.C and appendix: a smaller kappa means a smaller gradient and a flatter start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from pydantic import PositiveFloat, PositiveInt
from rich.filesize import decimal

from rayfl.config.cohort import BySampler
from rayfl.data.dataset import Samples
from rayfl.data.indexed_rows import IndexedRows
from rayfl.engine.plan.cohort import cohort_of
from rayfl.errors import ScenarioError
from rayfl.runs.figures.style import COLOURS
from rayfl.streams import stream
from rayfl.studies.analysis.analysis import DARK, Analysis, Open, Rounds, Row, WorkUnit, names_of, new_figure, tidy
from rayfl.studies.analysis.kernel import MOST, KernelSamples, kappa, unit_rows, update_bounds
from rayfl.studies.analysis.opened_run import OpenedRun
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.wording import counted

BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
_BOUNDS = -1
COMPARISONS = ("chosen clients", "permuted labels", "another set")


class NTK(Analysis):
    """kappa between the first training samples (P) and the samples of all clients (Q) of the first run.

    P is, in turn, the samples of the clients of some rounds; the same with permuted labels; and, with a second
    run, the training samples of that run.

    Attributes:
        rounds: Rounds of these clients; by default those of the relays.
        samples: Number of samples of each set, drawn at random.
        centred: Whether to subtract the mean from every column of the one-hot labels.
        updates: Number of first client updates for which to compute the bounds of SGD and OGD (see `update_bounds`).
            Each uses as many samples as the smallest of these clients has, at most `samples`. By default, none.
        ridge: Ridge of these bounds.
    """

    title: ClassVar[str] = "How well labels transfer to all clients' samples (neural tangent kernel)"
    most_runs: ClassVar[int | None] = 2

    rounds: Rounds = ()
    samples: PositiveInt = 1000
    centred: bool = False
    updates: PositiveInt | None = None
    ridge: PositiveFloat = 0.01

    def units(self, runs: Sequence[RunFolder]) -> list[WorkUnit]:
        if self.samples > MOST:
            raise ScenarioError(f"samples: kernels of {self.samples:,} samples do not fit; use at most {MOST:,}")
        if (together := self.samples * (self.updates or 0)) > MOST:
            raise ScenarioError(f"updates: kernels of {together:,} samples do not fit; use at most {MOST:,}")
        run = runs[0]
        rounds = self._chosen_rounds(run)
        if beyond := [round for round in rounds if round > run.rounds]:
            raise ScenarioError(
                f"rounds: the run '{run.path.name}' has {counted(run.rounds, 'round')}, not {beyond[0]}"
            )
        for plan in {run.index(round).phase: run.plans[run.index(round).phase] for round in rounds}.values():
            cohort = plan.phase.settings.cohort
            if isinstance(cohort, BySampler) or plan.phase.pool or plan.phase.settings.dp:
                raise ScenarioError(
                    f"phases.{plan.phase.name}: its cohorts cannot be drawn again; choose rounds of another phase"
                )
        comparisons = [WorkUnit(0, f"comparison{number}", (number,)) for number in range(1 + len(runs[:2]))]
        return [*comparisons, *([WorkUnit(0, "updates", (_BOUNDS,))] if self.updates else [])]

    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        memory = decimal(3 * (self.samples * (self.updates or 1)) ** 2 * 8)
        return f"{counted(len(units), 'comparison')} with kernels of {self.samples:,} samples, {memory} each"

    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        run, (number,) = open(0), unit.at
        if number == _BOUNDS:
            return self._bounds(run)
        q = self._drawn(run, np.sort(run.plan.workloads[0].store.train_shards.rows), "all")
        if number == 2:
            other = open(1)
            p = self._drawn(other, np.sort(other.plan.workloads[0].store.train_shards.rows), "another")
        else:
            shards = run.plan.workloads[0].store.train_shards
            clients = sorted(set(self._clients(run)))
            p = self._drawn(run, np.sort(np.concatenate([shards[client] for client in clients])), "visited")
        classes = max(_classes(one) for one in (p, q))
        labels = p.y
        if number == 1:
            labels = stream(run.plan.scenario.seed, "analysis permuted").permutation(labels)
        x_p, x_q = unit_rows(np.asarray(p.x)), unit_rows(np.asarray(q.x))
        if x_p.shape[1] != x_q.shape[1]:
            raise ScenarioError(
                f"the inputs of the two runs have {x_q.shape[1]} and {x_p.shape[1]} values, but the kernel compares "
                "inputs of the same size; name a run on images of the same size"
            )
        comparison = kappa(x_p, self._targets(labels, classes), x_q, self._targets(q.y, classes))
        return [{"run": 0, "comparison": COMPARISONS[number], "n_p": len(p), "n_q": len(q), **comparison._asdict()}]

    def _chosen_rounds(self, run: RunFolder) -> list[int]:
        relays = {plan.number for plan in run.plans if plan.phase.schedule == "relay"}
        rounds = list(self.rounds) or [r for r in range(1, run.rounds + 1) if run.index(r).phase in relays]
        if not rounds:
            raise ScenarioError(f"rounds: '{run.path}' has no relay, whose clients would be compared; name rounds")
        return rounds

    def _clients(self, run: OpenedRun) -> list[int]:
        """The clients of the chosen rounds in order, drawn as in the run."""
        folder, scenario = run.folder, run.plan.scenario
        folder.check_drawn()
        clients: list[int] = []
        wanted = self._chosen_rounds(folder)
        previous: int | None = None
        for round in range(1, max(wanted) + 1):
            index = folder.index(round)
            phase = folder.plans[index.phase].phase
            if phase.pool or isinstance(phase.settings.cohort, BySampler):
                previous = None
                continue
            before = previous if index.round_in_phase > 1 else None
            cohort = cohort_of(phase, scenario.seed, index, run.plan.phases[index.phase].population.sizes, before)
            previous = cohort[-1] if cohort else None
            if round in wanted:
                clients += cohort
        return clients

    def _bounds(self, run: OpenedRun) -> list[Row]:
        """The bounds of the first client updates, for SGD and for OGD."""
        shards, clients = run.plan.workloads[0].store.train_shards, self._clients(run)[: self.updates]
        if len(clients) < (self.updates or 0):
            raise ScenarioError(f"updates: the chosen rounds have {len(clients)} client updates; use at most as many")
        size = min(self.samples, *(len(shards[client]) for client in clients))
        rng = stream(run.plan.scenario.data_seed, "analysis ntk visits")
        drawn = [np.sort(rng.choice(shards[client], size, replace=False)) for client in clients]
        sets = [self._drawn(run, rows, "visit") for rows in drawn]
        classes = max(map(_classes, sets))
        updates = [KernelSamples(unit_rows(np.asarray(one.x)), self._targets(one.y, classes)) for one in sets]
        return [
            {"run": 0, "method": method, "update": place, "client": client, "n_p": size, **bound._asdict()}
            for method, orthogonal in (("SGD", False), ("OGD", True))
            for place, (client, bound) in enumerate(
                zip(clients, update_bounds(updates, self.ridge, orthogonal), strict=True), start=1
            )
        ]

    def _drawn(self, run: OpenedRun, rows: np.ndarray, purpose: str) -> Samples:
        store = run.plan.workloads[0].store
        x, y = store.train.x, store.train.y
        if not isinstance(x, np.ndarray | IndexedRows) or y.ndim != 1 or y.dtype.kind not in "ui":
            raise ScenarioError(f"'{run.folder.path}': the kernel requires inputs of one size, and class labels")
        if len(rows) > self.samples:
            rng = stream(run.plan.scenario.data_seed, f"analysis ntk {purpose}")
            rows = np.sort(rng.choice(rows, self.samples, replace=False, shuffle=False))
        return store.train.take(rows)

    def _targets(self, labels: np.ndarray, classes: int) -> np.ndarray:
        targets: np.ndarray = np.eye(classes)[labels]
        return targets - targets.mean(axis=0) if self.centred else targets

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        figure = new_figure(self.title, runs, 7, 8 if self.updates else 4.4)
        axes, *below = figure.subplots(2 if self.updates else 1, squeeze=False)[:, 0]
        compared, bounds = _comparisons(rows), [row for row in rows if row.get("update")]
        labels = [_label(row, runs) for row in compared]
        bars = axes.bar(labels, [row["relative"] for row in compared], 0.55, color=COLOURS[: len(compared)])
        axes.bar_label(bars, fmt="%.3f", padding=2)
        axes.axhline(1, color=DARK, linestyle="--", linewidth=0.8)
        axes.annotate("useless", (1, 1), xycoords=("axes fraction", "data"), xytext=(-2, 3),
                      textcoords="offset points", ha="right", fontsize=9, bbox=BEHIND)  # fmt: skip
        axes.margins(y=0.12)
        tidy(axes, "learned from", "κ / ‖y‖²", names_of(runs[:1])[0])
        for panel in below:
            for method, colour in zip(("SGD", "OGD"), COLOURS, strict=False):
                own = [row for row in bounds if row["method"] == method]
                for form, line in (("corrected", "-"), ("printed", ":")):
                    panel.plot([row["update"] for row in own], [row[form] for row in own], line, marker="o",
                               color=colour, label=f"{method}, {form}")  # fmt: skip
            panel.xaxis.get_major_locator().set_params(integer=True)
            panel.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
            tidy(panel, "client update", "bound on the client's final loss", "")
        return figure

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        lines = [
            f"kappa    {_label(row, runs)}: {row['kappa']:.4g}, relative to the labels {row['relative']:.4f}; smallest "
            f"eigenvalues {row['smallest_p']:.3g} (P), {row['smallest_q']:.3g} (Q)"
            for row in _comparisons(rows)
        ]
        by_method = {method: [row for row in rows if row.get("method") == method] for method in ("SGD", "OGD")}
        lines += [
            f"bound    {method}, mean over {len(own)} client updates: {np.mean([row['corrected'] for row in own]):.4g} "
            f"corrected, {np.mean([row['printed'] for row in own]):.4g} as printed; smallest eigenvalue "
            f"{min(row['smallest'] for row in own):.3g}"
            for method, own in by_method.items()
            if own
        ]
        return lines


def _comparisons(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row.get("comparison")]


def _label(row: Mapping[str, Any], runs: Sequence[RunFolder]) -> str:
    if row["comparison"] != COMPARISONS[2]:
        return str(row["comparison"])
    return f"{runs[1].environment['data']['name']} of {runs[1].path.name}"


def _classes(samples: Samples) -> int:
    return int(samples.y.max()) + 1

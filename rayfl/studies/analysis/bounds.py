"""Convergence bounds of the phases of a run, as a relay and as parallel rounds, from measured constants.

CyclicFL (second version), assumptions 1 to 4, Corollary 1 and remark 1; `convergence` has the bounds and the paper's
slips. The objective of client i is L_i(w), its mean loss, plus weight_decay / 2 ||w||^2 where SGD adds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator
from pydantic import PositiveInt

from rayfl.engine.plan.cohort import expected_cohort_size
from rayfl.errors import ScenarioError
from rayfl.local.steps import step_size, typical, update_steps
from rayfl.runs.figures.style import COLOURS, GREY, plain_numbers
from rayfl.streams import stream
from rayfl.studies.analysis.analysis import DARK, Open, Row, WorkUnit, by_run, names_of, new_figure, tidy
from rayfl.studies.analysis.convergence import TERMS, Constants, Kind, Training, bound, fitted_spread
from rayfl.studies.analysis.curvature import STEPS, curvature
from rayfl.studies.analysis.heterogeneity import GradientSpread, OfModels
from rayfl.studies.analysis.opened_run import OpenedRun
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.wording import counted

KINDS: tuple[Kind, ...] = get_args(Kind)
LINES: dict[Training, Literal["-", "--"]] = {"relay": "-", "parallel": "--"}
OF_LOSS, OF_GRADIENT = "bound on L(w) − L(w*)", "‖∇L(w)‖²: bound, and measured"


class Bounds(OfModels):
    """Convergence bounds of relays and parallel phases, with the constants of the run, and as if each were the other.

    The bounds hold up to a common constant: compare the two schedules, and how they fall, not a bound with a loss. L,
    sigma^2, beta^2 and zeta^2 are measured at all chosen models: L, the largest absolute eigenvalue of any client's
    Hessian, by Lanczos' method with exact products; sigma^2, the mean over clients, is the largest of any model; beta^2
    and zeta^2 are the tightest line above all. In every phase w_* is the measured model with the smallest loss, from
    which zeta_*, A and D follow. Gradients are on training samples without augmentation, in evaluation mode; all
    clients have the same weight.

    Attributes:
        rounds: Further kept models to measure, beside the start and the end of every phase.
        batch_size: Batch size of sigma^2; by default that of the local steps of the first phase.
    """

    title: ClassVar[str] = "Convergence bounds of relays and parallel rounds, up to a common constant"

    batch_size: PositiveInt | None = None

    def rounds_of(self, run: RunFolder) -> Sequence[int]:
        if not _bounded(run):
            raise ScenarioError(f"'{run.path}' has no relay and no parallel phase, the only ones with a bound")
        return sorted({0, *run.last_rounds, *self.rounds})

    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        clients = sum(runs[unit.run].clients for unit in units)
        return (
            f"{counted(len(units), 'model')}, {2 * clients:,} passes over the samples of a client with gradients, and "
            f"at most {STEPS * clients:,} with second derivatives"
        )

    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        run, (round,) = open(unit.run), unit.at
        plan = run.plan.phases[run.folder.phase_of_model(round)]
        vector, initial, sizes = run.vector(round), run.workload(round).initial, plan.population.sizes
        local = typical(run.plan.phases[0].phase.local)
        batch_size = self.batch_size or step_size(local, int(sizes.max()))
        spread, largest, smallest = GradientSpread(initial.num_params), 0.0, np.inf
        used = np.concatenate([np.arange(s.offset, s.offset + s.size) for s in initial.layout if s.is_parameter])
        for client, evaluator in enumerate(self.evaluators(run, round)):
            spread.add(evaluator, vector, batch_size)
            first = np.zeros(initial.num_params)
            first[used] = stream(run.plan.scenario.seed, "analysis curvature", client).normal(size=len(used))
            ends = curvature(partial(evaluator.hessian_product, vector), first)
            largest, smallest = max(largest, ends.largest), min(smallest, ends.smallest)
        weights = vector[: initial.num_params].astype(np.float64)
        steps = [update_steps(typical(plan.phase.local), int(size)) for size in sizes]
        return [
            {"run": unit.run, "round": round, **spread.row()}
            | {
                "loss": spread.loss,
                "gradient_along_model": float(spread.mean @ weights),
                "model_norm": float(np.linalg.norm(weights)),
                "distance": float(np.linalg.norm(weights - self._start(run, round, len(weights)))),
                "largest_curvature": largest,
                "smallest_curvature": smallest,
                "steps": float(np.mean(steps)),
            }
        ]

    def _start(self, run: OpenedRun, round: int, length: int) -> np.ndarray:
        """The parameters that the phase of a model began with.

        Raises:
            ScenarioError: The next phase begins with another network than this model.
        """
        if round in run.folder.last_rounds[:-1] and not np.array_equal(run.received(round + 1), run.vector(round)):
            plan = run.folder.plans[run.folder.phase_of_model(round + 1)]
            raise ScenarioError(
                f"phases.{plan.phase.name}: it does not begin with the model that the phase before it ends with, and "
                "bounds need one network throughout; analyse a run without a fresh head or another network in it"
            )
        first = run.folder.plans[run.folder.phase_of_model(round)].first_round
        return run.vector(first - 1)[:length].astype(np.float64)

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        phases = [phase for phase in _phases(rows, runs) if phase.has("non-convex")]
        kinds = [kind for kind in KINDS if kind != "strongly convex" or any(one.has(kind) for one in phases)]
        figure = new_figure(self.title, runs, 2.2 + 4.2 * len(kinds), 0.8 + 3.4 * max(1, len(phases)))
        panels = figure.subplots(len(phases), len(kinds), squeeze=False) if phases else ()
        for own, phase in zip(panels, phases, strict=True):
            for axes, kind in zip(own, kinds, strict=True):
                phase.draw(axes, kind)
        if not phases:
            figure.text(0.5, 0.5, "no phase whose loss falls", color=GREY, ha="center")
        handles = [Line2D([], [], color=DARK, linestyle=line, label=name) for name, line in LINES.items()]
        handles += [Line2D([], [], color=colour, label=f"mostly {term}") for term, colour in _COLOURS.items()]
        handles.append(Line2D([], [], color=DARK, marker="o", linestyle="", label="measured"))
        figure.legend(handles=handles, loc="outside right center", frameon=False)
        return figure

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        return [line for phase in _phases(rows, runs) for line in phase.lines()]


_COLOURS = dict(zip(TERMS, COLOURS, strict=False))


def _bounded(run: RunFolder) -> list[int]:
    """The phases with a bound."""
    return [n for n, phase in enumerate(run.scenario.phases) if phase.schedule in LINES and phase.rounds]


@dataclass(frozen=True)
class _Phase:
    """A phase with its constants, and what was measured of its objective."""

    name: str
    training: Training
    rounds: int
    clients: float
    steps: float
    constants: Constants
    measured: Sequence[tuple[int, float]]

    def has(self, kind: Kind) -> bool:
        return self.constants.gap > 0 and (kind != "strongly convex" or self.constants.convexity > 0)

    def bound(self, kind: Kind, training: Training, rounds: np.ndarray) -> np.ndarray:
        return bound(kind, training, self.constants, self.clients, self.steps, rounds)

    def draw(self, axes: Axes, kind: Kind) -> None:
        holds = kind == "non-convex" or self.constants.convexity >= 0
        title = f"{self.name}, {kind}{'' if holds else ' (it is not)'}"
        tidy(axes, "rounds of the phase", OF_GRADIENT if kind == "non-convex" else OF_LOSS, title)
        if not self.has(kind):
            axes.set_axis_off()
            axes.text(0.5, 0.5, f"{kind}: left out", color=GREY, ha="center", transform=axes.transAxes)
            return
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        plain_numbers(axes)
        axes.xaxis.set_minor_locator(NullLocator())
        rounds = np.geomspace(1, max(self.rounds, 2), 200)
        for training, line in LINES.items():
            terms = self.bound(kind, training, rounds)
            total, leading = terms.sum(axis=0), terms.argmax(axis=0)
            for term, colour in enumerate(_COLOURS.values()):
                at = leading == term
                at[1:] |= at[:-1]  # up to where the next term takes over
                width = 2.4 if training == self.training else 1.4
                axes.plot(rounds, np.where(at, total, np.nan), line, color=colour, linewidth=width)
        if kind == "non-convex":
            later = [(round, squared) for round, squared in self.measured if round]
            axes.plot(*zip(*later, strict=True), "o", color=DARK, markersize=4)

    def lines(self) -> Iterator[str]:
        of, last = self.constants, np.array([float(self.rounds)])
        yield (
            f"phase    {self.name}: {self.training}, T {self.rounds}, S {self.clients:.4g}, K {self.steps:.4g}, "
            f"A {of.gap:.4g}, D {of.distance:.4g}, L {of.smoothness:.4g}, mu {of.convexity:.4g}, "
            f"sigma^2 {of.noise:.4g}, zeta^2 {of.spread:.4g}, beta^2 {of.slope:.4g}, "
            f"zeta_*^2 {of.spread_at_optimum:.4g}"
        )
        if of.gap <= 0:
            yield f"bound    {self.name}: left out, since no measured model has a smaller loss than the start"
            return
        for kind in KINDS:
            if not self.has(kind):
                yield (
                    f"bound    {self.name}, {kind}: left out, since the smallest measured curvature (weight decay "
                    f"included) is {of.convexity:.4g}, not positive"
                )
                continue
            said, totals = [], []
            for training in LINES:
                terms = self.bound(kind, training, last)[:, 0]
                totals.append(float(terms.sum()))
                said.append(f"{training} {totals[-1]:.4g} (mostly {TERMS[terms.argmax()]})")
            yield f"bound    {self.name}, {kind}: {', '.join(said)}, relay / parallel {totals[0] / totals[1]:.4f}"


def _phases(rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Iterator[_Phase]:
    for run, name, own in zip(runs, names_of(runs), by_run(rows, runs), strict=True):
        for number in _bounded(run):
            plan, last = run.plans[number], run.last_rounds[number]
            local, before = plan.phase.local, plan.first_round - 1
            decay = local.weight_decay if local.optimizer.name == "sgd" else 0.0
            losses = [row["loss"] + decay / 2 * row["model_norm"] ** 2 for row in own]
            squares = np.array([
                row["gradient_norm"] ** 2 + 2 * decay * row["gradient_along_model"] + (decay * row["model_norm"]) ** 2
                for row in own
            ])  # fmt: skip
            slope, rest = fitted_spread(squares, np.array([row["client_spread"] for row in own]))
            within = [place for place, row in enumerate(own) if before <= row["round"] <= last]
            best = min(within, key=losses.__getitem__)
            constants = Constants(
                smoothness=max(row["largest_curvature"] for row in own) + decay,
                noise=max(row["batch_spread"] for row in own),
                slope=slope,
                spread=rest,
                spread_at_optimum=own[best]["client_spread"] + float(squares[best]),
                gap=losses[within[0]] - losses[best],
                distance=own[best]["distance"] if best > within[0] else 0.0,
                convexity=min(row["smallest_curvature"] for row in own) + decay,
            )
            yield _Phase(
                f"{name}, {plan.phase.name}" if len(runs) > 1 else plan.phase.name,
                cast(Training, plan.phase.schedule),
                plan.phase.rounds,
                expected_cohort_size(plan.phase, own[0]["clients"]),
                own[within[-1]]["steps"],
                constants,
                [(own[place]["round"] - before, float(squares[place])) for place in within],
            )

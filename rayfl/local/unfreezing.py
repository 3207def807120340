"""FedBug's gradual unfreezing: which modules train at which step of a client update.

Kao et al., "FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning", alg. 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from typing import TypeVar

from torch import nn

from rayfl.config.phase import Local, Unfreezing
from rayfl.errors import ScenarioError
from rayfl.models.network import Network

T = TypeVar("T")


def training_stages(
    local: Local, fixed_last: int, network: nn.Module, steps: int
) -> list[tuple[int, Sequence[str] | None]]:
    """The stages of a client update: (number of steps, names of the modules that train in them); None stands for all.

    Args:
        local: How clients train.
        fixed_last: How many of the last ordered modules the algorithm never trains; `local` may fix more.
        network: The network.
        steps: Of the client update.

    Raises:
        ScenarioError: The network declares no modules, or no such grouping, or too few of them for what is asked; or
            the client update is too short for the code's schedule.
    """
    fixed_last = max(fixed_last, local.fixed_last)
    if local.unfreeze is None and not fixed_last:
        return [(steps, None)]
    units = trained_units(local, fixed_last, network)
    names = [name for unit in units for name in unit]
    if local.unfreeze is None:
        return [(steps, names)]
    if local.unfreeze.order == "top_down":
        units = units[::-1]
    thawed = [thawed_units(local.unfreeze, step, steps, len(units)) for step in range(1, steps + 1)]
    return [(sum(1 for _ in run), [name for unit in units[:count] for name in unit]) for count, run in groupby(thawed)]


def never_trained(local: Local, fixed_last: int, network: nn.Module) -> tuple[str, ...]:
    """Names of the modules that no client update trains.

    Args:
        local: How clients train.
        fixed_last: How many of the last ordered modules the algorithm never trains.
        network: The network; without ordered modules everything trains.
    """
    fixed = max(fixed_last, local.fixed_last)
    modules = network.ordered_modules if isinstance(network, Network) else ()
    return tuple(modules[len(modules) - fixed :]) if fixed else ()


def thawed_units(unfreeze: Unfreezing, step: int, steps: int, units: int) -> int:
    """m: how many of M = `units` train at `step` (from 1) of a client update of K = `steps`.

    paper: m = min(M, ceil(k M / (P K))). code: m = min(M, floor((k - 1) / phi) + 1) with phi = floor(P K / M).
    In exact fractions: a product such as 0.3 * 50 may fall just below an integer.

    Raises:
        ScenarioError: phi is 0.
    """
    window = Fraction(str(unfreeze.share)) * steps
    if not window:
        return units
    if unfreeze.schedule == "paper":
        return min(units, -(-step * units // window))
    period = window // units
    if not period:
        raise ScenarioError(
            f"local.unfreeze: with schedule = 'code' a share of {unfreeze.share} of {steps} steps is too short for "
            f"{units} units; at least {units} steps must lie in it"
        )
    return min(units, (step - 1) // period + 1)


def trained_units(local: Local, fixed_last: int, network: nn.Module) -> list[tuple[str, ...]]:
    """The units that thaw one after another, from input to output, without the modules that are never trained.

    Raises:
        ScenarioError: The network declares no modules, or no such grouping, or all of its modules would be fixed.
    """
    kind = type(network).__name__
    if not isinstance(network, Network):
        raise ScenarioError(
            f"model {kind}: freezing modules needs their order; derive it from rayfl.models.network.Network and "
            "declare ordered_modules"
        )
    modules = network.ordered_modules
    if fixed_last >= len(modules):
        raise ScenarioError(f"model {kind}: {fixed_last} modules are to be fixed, and it has only {len(modules)}")
    grouping = local.unfreeze.units if local.unfreeze else "modules"
    if grouping == "modules":
        units: Sequence[tuple[str, ...]] = [(name,) for name in modules]
    elif grouping in network.groupings:
        units = network.groupings[grouping]
    else:
        known = ", ".join(f"'{name}'" for name in ("modules", *network.groupings))
        raise ScenarioError(f"local.unfreeze.units: model {kind} has no units '{grouping}'; it has {known}")
    fixed = set(modules[len(modules) - fixed_last :])
    left = (tuple(name for name in unit if name not in fixed) for unit in units)
    return [unit for unit in left if unit]

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
    """Divides a client update into stages, in each of which a fixed set of modules trains.

    Args:
        local: Options of local training.
        fixed_last: How many of the last ordered modules the algorithm never trains; `local` may fix more.
        network: The network.
        steps: Number of steps in the client update.

    Returns:
        For each stage, in order, its number of steps and the names of the modules that train; None stands for all.

    Raises:
        ScenarioError: The network declares no ordered modules, not the grouping asked for, or too few modules; or the
            client update is too short for the `code` schedule.
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
    """Names of the modules that no client update trains, from input to output.

    Args:
        local: Options of local training.
        fixed_last: How many of the last ordered modules the algorithm never trains; `local` may fix more.
        network: The network. If it declares no ordered modules, everything trains and the result is empty.
    """
    fixed = max(fixed_last, local.fixed_last)
    modules = network.ordered_modules if isinstance(network, Network) else ()
    return tuple(modules[len(modules) - fixed :]) if fixed else ()


def thawed_units(unfreeze: Unfreezing, step: int, steps: int, units: int) -> int:
    """The number of units m that train at one step of a client update.

    With P = `unfreeze.share`, the `paper` schedule has m = min(M, ceil(k M / (P K))), and the `code` schedule
    m = min(M, floor((k - 1) / phi) + 1) with phi = floor(P K / M). Both are computed with exact fractions, because the
    floating-point product P K may fall just below an integer.

    Args:
        unfreeze: Options of gradual unfreezing.
        step: k, counted from 1.
        steps: K, the number of steps in the client update.
        units: M, the number of units that can train.

    Raises:
        ScenarioError: phi is 0 although P is not.
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

    Args:
        local: Options of local training.
        fixed_last: How many of the last ordered modules are never trained.
        network: The network.

    Returns:
        The names of each unit's modules.

    Raises:
        ScenarioError: The network declares no ordered modules or not the grouping asked for, or all of its modules
            would be fixed.
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

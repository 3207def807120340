"""FedBug's gradual unfreezing: which modules train at which step of a client update.

Kao et al., "FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning", alg. 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby

from torch import nn

from rayfl.config.local import Local, Unfreezing
from rayfl.errors import ScenarioError
from rayfl.local.selection import Selection
from rayfl.models.network import Network


def training_stages(
    local: Local, selection: Selection | None, network: nn.Module, steps: int
) -> list[tuple[int, frozenset[str] | None]]:
    """Divides a client update into stages, in each of which a fixed set of parameters trains.

    Args:
        local: Options of local training.
        selection: Tensors that may train; None for everything.
        network: The network.
        steps: Number of steps in the client update.

    Returns:
        For each stage, in order, its number of steps and the names of the tensors that train; None stands for all.

    Raises:
        ScenarioError: The network declares no ordered modules, or not the grouping asked for; or the client update is
            too short for the `code` schedule.
    """
    if local.unfreeze is None:
        return [(steps, selection.tensors if selection else None)]
    units = trained_units(local.unfreeze, selection, network)
    if len(units) == 1 and local.unfreeze.share:
        raise ScenarioError("local.unfreeze: has no effect where a single unit trains; leave it out")
    if local.unfreeze.order == "top_down":
        units = units[::-1]
    thawed = [thawed_units(local.unfreeze, step, steps, len(units)) for step in range(1, steps + 1)]
    return [(sum(1 for _ in run), frozenset().union(*units[:count])) for count, run in groupby(thawed)]


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
            f"{units} units; it must contain at least {units} steps"
        )
    return min(units, (step - 1) // period + 1)


def trained_units(unfreeze: Unfreezing, selection: Selection | None, network: nn.Module) -> list[frozenset[str]]:
    """Returns the units that thaw one after another, from input to output, without parameters that never train.

    Args:
        unfreeze: Options of gradual unfreezing.
        selection: Tensors that may train; None for everything.
        network: The network.

    Returns:
        The names of each unit's parameters.

    Raises:
        ScenarioError: The network declares no ordered modules, or lacks the requested grouping.
    """
    kind = type(network).__name__
    if not isinstance(network, Network):
        raise ScenarioError(
            f"model {kind}: unfreezing modules needs their order; derive it from rayfl.models.Network and "
            "declare ordered_modules"
        )
    if unfreeze.units == "modules":
        units: Sequence[tuple[str, ...]] = [(name,) for name in network.ordered_modules]
    elif unfreeze.units in network.groupings:
        units = network.groupings[unfreeze.units]
    else:
        known = ", ".join(f"'{name}'" for name in ("modules", *network.groupings))
        raise ScenarioError(f"local.unfreeze.units: model {kind} has no units '{unfreeze.units}'; it has {known}")
    names = [name for name, _ in network.named_parameters(remove_duplicate=False)]
    left = [name for name in names if selection is None or name in selection.tensors]
    tensors = (
        frozenset(name for name in left if any(name.startswith(f"{module}.") for module in unit)) for unit in units
    )
    return [unit for unit in tensors if unit]

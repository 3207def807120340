"""Builds the scenario's network, with the same initial parameters in every process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.data.inputs import Fields
from rayfl.data.store import ShardStore
from rayfl.engine.device import seed_torch
from rayfl.engine.plan.phase_plan import has_fresh_head
from rayfl.engine.plan.workload import InitialModel, Workload, late_constants
from rayfl.errors import ScenarioError
from rayfl.local.client_state import on_device
from rayfl.models.constants import as_tensor, as_view
from rayfl.models.construction import build_module
from rayfl.models.fast_kernels import use_fast_kernels
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import Discrete, Slot
from rayfl.streams import torch_seed

TORCH_GLOBALS = threading.RLock()
"""Held while PyTorch's process-wide random generator or thread count is set, as another thread may run a scenario."""


def build_network(
    scenario: Scenario, network: Named, store: ShardStore, num_outputs: int, seed: int | None = None
) -> nn.Module:
    """Builds the network with its initial parameters.

    Unless `numerics.kernels` is `plain`, layers are replaced by faster ones with the same outputs.

    Args:
        scenario: The scenario.
        network: The network's name and options.
        store: The data that it is for.
        num_outputs: Width of its output, passed to it as `num_classes`.
        seed: Seed of the initial parameters; by default they are drawn from the scenario's own stream.

    Raises:
        ScenarioError: The name or an option is unknown, or does not build a torch.nn.Module.
    """
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        seed_torch(torch_seed(scenario.seed, "initial") if seed is None else seed, torch.device("cpu"))
        known = {"num_classes": num_outputs, "input_shape": store.input_shape}
        arguments = {name: value for name, value in known.items() if value is not None}
        module = build_module(network.name, network.options, arguments, "model")
        module.train()  # its own train() may freeze parameters, which then have a place after those that train
    if scenario.numerics.kernels == "fast":
        use_fast_kernels(module)
    if isinstance(store.train.x, Fields) or store.collate:
        module.register_forward_pre_hook(_named_inputs_as_keywords, with_kwargs=True)
    return module


def model_as_built(scenario: Scenario, workload: Workload, device: torch.device, seed: int | None = None) -> FlatModel:
    """Builds a workload's network in the layout of its initial model, with the values that it is built with.

    Its constants are those of the workload, unless there is a seed. Arguments as for `build_network`.
    """
    network = build_network(scenario, workload.network, workload.store, workload.num_outputs, seed)
    constants = [slot.name for slot in workload.initial.constant_slots]
    model = FlatModel(network, device, workload.initial.channels_last, constants)
    if seed is None and len(workload.initial.constants):
        model.constants.hold(as_tensor(workload.initial.constants))
    return model


def flat_model(scenario: Scenario, workload: Workload) -> FlatModel:
    """Returns a workload's initial model on the CPU."""
    model = model_as_built(scenario, workload, torch.device("cpu"))
    load_initial(model, workload.initial)
    return model


def load_initial(model: FlatModel, initial: InitialModel, discrete: Discrete | None = None) -> None:
    """Loads an initial model, which trials of the network may have changed; `discrete` replaces its own buffers."""
    values = initial.discrete if discrete is None else discrete
    if len(initial.constants):
        model.constants.hold(as_view(initial.constants))
    model.load(torch.from_numpy(np.array(initial.vector)), on_device(values, torch.device("cpu")))


def constants_handed_over(scenario: Scenario, workloads: Sequence[Workload]) -> list[Workload]:
    """Returns the workloads of all phases with the constants that each takes over from the phase before.

    Phases that share a workload go on to do so unless its constants differ between them. Where all of them are known
    only in the run, the workload has no values.

    Raises:
        ScenarioError: A phase freezes in another type what an earlier one trains.
    """
    fresh_heads = [has_fresh_head(scenario, number) for number in range(len(workloads))]
    late = late_constants([workload.initial for workload in workloads], fresh_heads)
    result, made = [workloads[0]], {id(workload): [workload] for workload in workloads}
    for number, workload in enumerate(workloads[1:], start=1):
        own, other = workload.initial, result[-1].initial
        _check_types(scenario, number, [slot for slot in own.constant_slots if slot.name in late[number]])
        if late[number] and len(late[number]) == len(own.constant_slots):
            memory = own.constants[:0]
        elif own is other:
            memory = own.constants
        else:
            memory = own.take_constants(other.vector, other, fresh_heads[number])
        variants = made[id(workload)]
        same = [one for one in variants if np.array_equal(_bits(one.initial.constants), _bits(memory))]
        if not same:
            variants.append(replace(workload, initial=replace(own, constants=memory)))
        result.append(same[0] if same else variants[-1])
    return result


def _check_types(scenario: Scenario, number: int, late: Sequence[Slot]) -> None:
    if other := next((slot for slot in late if slot.dtype != "float32"), None):
        raise ScenarioError(
            f"phases.{scenario.phases[number].name}.model: frozen parameter '{other.name}' is torch.{other.dtype}, but "
            "an earlier phase trains it in torch.float32; convert the model with .float(), or train it in no phase"
        )


def _bits(constants: np.ndarray) -> np.ndarray:
    return np.asarray(constants).view(np.int32)


def _named_inputs_as_keywords(
    _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Passes a batch's named inputs, which callers give as one dictionary, as keyword arguments."""
    return ((), args[0]) if len(args) == 1 and isinstance(args[0], dict) else None

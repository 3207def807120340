"""Builds the scenario's network, with the same initial parameters in every process."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import nn

from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.data.inputs import Fields
from rayfl.data.store import ShardStore
from rayfl.engine.device import seed_torch
from rayfl.engine.plan.workload import InitialModel, Workload
from rayfl.local.client_state import on_device
from rayfl.models.construction import build_module
from rayfl.models.fast_kernels import use_fast_kernels
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import Discrete
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

    Arguments as for `build_network`.
    """
    network = build_network(scenario, workload.network, workload.store, workload.num_outputs, seed)
    return FlatModel(network, device, workload.initial.channels_last)


def flat_model(scenario: Scenario, workload: Workload) -> FlatModel:
    """Returns a workload's initial model on the CPU."""
    model = model_as_built(scenario, workload, torch.device("cpu"))
    load_initial(model, workload.initial)
    return model


def load_initial(model: FlatModel, initial: InitialModel, discrete: Discrete | None = None) -> None:
    """Loads an initial model, which trials of the network may have changed; `discrete` replaces its own buffers."""
    values = initial.discrete if discrete is None else discrete
    model.load(torch.from_numpy(np.array(initial.vector)), on_device(values, torch.device("cpu")))


def _named_inputs_as_keywords(
    _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Passes a batch's named inputs, which callers give as one dictionary, as keyword arguments."""
    return ((), args[0]) if len(args) == 1 and isinstance(args[0], dict) else None

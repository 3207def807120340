"""Builds and checks the scenario's network, with the same initial parameters in every process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.data.batches import Batch, BatchSource
from rayfl.data.collation import Input
from rayfl.data.image_layout import CHANNELS, how_to_make_images
from rayfl.data.inputs import Fields
from rayfl.data.store import ShardStore
from rayfl.engine.device import seed_torch
from rayfl.errors import RayflError, ScenarioError
from rayfl.models import models
from rayfl.models.building import build_module
from rayfl.models.fast_kernels import use_fast_kernels
from rayfl.models.flat import FlatModel
from rayfl.models.network import NoImagesError
from rayfl.planning.workload import Workload
from rayfl.registry import asks_for, takes_option
from rayfl.streams import torch_seed
from rayfl.tasks.task import Task
from rayfl.user_code import report_as_theirs

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
        given = {name: value for name, value in known.items() if value is not None}
        module = build_module(network.name, network.options, given, "model")
    if scenario.numerics.kernels == "fast":
        use_fast_kernels(module)
    if isinstance(store.train.x, Fields) or store.collate:
        module.register_forward_pre_hook(_named_inputs_as_keywords, with_kwargs=True)
    return module


def flat_model(scenario: Scenario, workload: Workload) -> FlatModel:
    """Returns a workload's initial model on the CPU."""
    network = build_network(scenario, workload.network, workload.store, workload.num_outputs)
    model = FlatModel(network, torch.device("cpu"))
    model.load(torch.from_numpy(np.array(workload.initial.vector)))
    return model


def _named_inputs_as_keywords(
    _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Passes a batch's named inputs, which callers give as one dictionary, as keyword arguments."""
    return ((), args[0]) if len(args) == 1 and isinstance(args[0], dict) else None


def build_checked(
    scenario: Scenario, network: Named, store: ShardStore, task: Task, num_outputs: int, key: str = "model"
) -> FlatModel:
    """Builds the flat initial model on the CPU, and tries it on two test samples; `key` is the network's key.

    Raises:
        ScenarioError: The network does not accept the data's inputs, or its output does not fit the task.
    """
    as_images = "" if store.collate else how_to_make_images(store.train.x)
    try:
        built = build_network(scenario, network, store, num_outputs)
    except NoImagesError as error:
        raise ScenarioError(f"{error}{as_images}") from None
    try:
        task.check_network(built)
    except ScenarioError as error:
        raise ScenarioError(f"{key} '{network.name}': {error}") from None
    model = FlatModel(built, torch.device("cpu"))
    source = BatchSource(store, torch.device("cpu"), ignored_label=task.ignored_label)
    model.module.eval()
    where = f"{key} '{network.name}' on {store.name}"
    x, y = source.test_batch(slice(0, 2))
    width = _how_to_set_width(network, num_outputs, key)
    _try(model.module, x, y, task, num_outputs, where, width, as_images)
    for augmented, labels in _resized_batches(source, store, _shapes(x)):
        _try(model.module, augmented, labels, task, num_outputs, f"{where}, augmented")
    return model


def _resized_batches(source: BatchSource, store: ShardStore, shapes: str) -> Iterator[Batch]:
    """Yields two training samples as each view augments them, if augmentation changes the inputs' shapes."""
    rows = np.arange(min(2, len(store.train)))
    for view in range(len(store.augmentations) if source.varies else 0):
        for x, y in source.training_batches(rows, 2, np.random.default_rng(0), view=view):
            if _shapes(x) != shapes:
                yield x, y


def _try(
    module: nn.Module,
    x: Input,
    y: torch.Tensor,
    task: Task,
    num_outputs: int,
    where: str,
    width: str = "",
    as_images: str = "",
) -> None:
    """Tries a batch; `width` and `as_images` are remedies for outputs and inputs that do not fit."""
    try:
        with torch.no_grad():
            outputs = module(x)
    except RayflError:
        raise
    except (Exception, SystemExit) as error:  # a user's network may raise anything on unexpected inputs
        line, *rest = report_as_theirs(error, f"{where}: a batch of inputs {_shapes(x)}").split("\n", 1)
        if isinstance(x, torch.Tensor) and x.ndim == 4 and x.shape[1] not in CHANNELS:
            line += as_images
        elif "long" in str(error).lower() and any(one.dtype == torch.int64 for one in _tensors(x).values()):
            line += "; integers reach the network as int64: give measurements as x.astype('float32')"
        raise ScenarioError("\n".join([line, *rest])) from None
    if not isinstance(outputs, torch.Tensor):
        raise ScenarioError(f"{where}: its forward returns a {type(outputs).__name__}; it must return a tensor")
    shape, allowed = list(outputs.shape), task.output_shapes(y, num_outputs)
    if not any(_fits(shape, one) for one in allowed):
        raise ScenarioError(
            f"{where}: {len(y)} inputs give an output of shape {shape}, not {' or '.join(map(str, allowed))}{width}"
        )


def _fits(shape: Sequence[int], allowed: Sequence[int]) -> bool:
    return len(shape) == len(allowed) and all(there in (-1, here) for here, there in zip(shape, allowed, strict=True))


def _shapes(x: Input) -> str:
    return ", ".join(f"{name} {list(tensor.shape)}".strip() for name, tensor in _tensors(x).items())


def _tensors(x: Input) -> dict[str, torch.Tensor]:
    return x if isinstance(x, dict) else {"": x}


def _how_to_set_width(network: Named, num_outputs: int, key: str) -> str:
    """Returns a hint if the constructor takes the number of classes and did not get it, or got a different one."""
    target = models.resolve(network.name)
    told = asks_for(target, "num_classes") and "num_classes" not in network.options
    return f"; set {key}.num_classes = {num_outputs}" if takes_option(target, "num_classes") and not told else ""

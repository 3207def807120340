"""The scenario's network, built and checked: the same initial parameters wherever it is built."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.errors import RayflError, ScenarioError
from rayfl.models import models
from rayfl.models.flat import FlatModel
from rayfl.registry import call_with_options
from rayfl.streams import torch_seed


def build_network(scenario: Scenario, store: ShardStore) -> nn.Module:
    """The network with its initial parameters, drawn from the scenario's own stream.

    Raises:
        ScenarioError: the name or an option is unknown, or what it names makes no torch.nn.Module.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(scenario.seed, "initial"))
        given = {"num_classes": store.num_classes, "input_shape": store.input_shape}
        network: Any = call_with_options(models.resolve(scenario.model.name), scenario.model.options, given, "model")
    if not isinstance(network, nn.Module):
        raise ScenarioError(
            f"model.name: '{scenario.model.name}' made a {type(network).__name__}, not a torch.nn.Module"
        )
    return network


def build_checked(scenario: Scenario, store: ShardStore) -> FlatModel:
    """The flat initial model on the CPU, after a trial on two test examples.

    Raises:
        ScenarioError: the network does not take the data's inputs, or does not return one logit per class.
    """
    model = FlatModel(build_network(scenario, store), torch.device("cpu"))
    x, _ = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 2))
    model.module.eval()
    where = f"model '{scenario.model.name}' on {store.name}"
    try:
        with torch.no_grad():
            logits = model.module(x)
    except RayflError:
        raise
    except Exception as error:  # a user's network may raise anything on inputs it was not made for
        raise ScenarioError(f"{where}: a batch of inputs {list(x.shape)} fails: {error}") from error
    shape = list(getattr(logits, "shape", []))
    if shape != [len(x), store.num_classes]:
        raise ScenarioError(
            f"{where}: {len(x)} inputs give an output of shape {shape}, not [{len(x)}, {store.num_classes}]"
        )
    return model

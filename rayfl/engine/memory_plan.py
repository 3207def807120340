"""Plans what a worker process needs of a GPU's memory, with fake tensors: nothing is computed and nothing allocated.

Counted are the vectors of a model, the optimizer's state, what a step of training keeps for its backward pass, a batch
of evaluation, and samples that stay on the device. Not counted are what an algorithm adds (control variates, other
models), gradients of single samples under `local.dp`, and workspaces of CUDA's libraries: more may be needed.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from rayfl.config.local import Local
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.engine.device import CONTEXT_BYTES
from rayfl.engine.initial_model import build_network
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.workload import Workload
from rayfl.engine.resident import batch_sources
from rayfl.local.optimizers import build_optimizer
from rayfl.tasks.task import Task

HELD = 20
"""Bytes a value: the resident model, its gradient and the model that was sent (4 each), and a sum (8)."""

ANSWER = 12
"""Bytes a value while an answer is added: its change (4), and the change as it is rounded (8)."""

TRAINED = 4
"""Bytes a value and client that has trained."""

STACKED = 12
"""Bytes a value and client of clients that train at once: models, gradients, and those that autograd returns."""


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that operators make within the block, as long as they live.

    Attributes:
        now: Bytes at the moment.
        peak: The most so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now: int = 0
        self.peak: int = 0
        self._known = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known[storage] = size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, size)

    def _drop(self, size: int) -> None:
        self.now -= size


@dataclass(frozen=True)
class MemoryPlan:
    """What a worker process needs in a phase, in bytes.

    Attributes:
        phase: The phase's name.
        model: Vectors of the model that are always there, and constants.
        batch: The most that a step of training (with the optimizer's state), a batch of evaluation or an answer takes.
        samples: Samples that stay on the device.
    """

    phase: str
    model: int
    batch: int
    samples: int

    @property
    def total(self) -> int:
        return self.model + self.batch + self.samples


def memory_note(run: RunPlan, hosts: Sequence[Mapping[str, str]]) -> str | None:
    """Says where a worker's share of a GPU is too small for what is planned; fake tensors take about a second.

    Args:
        run: The run's plan.
        hosts: The result of `Host.describe` for each.

    Returns:
        One line; None if all fits, or if no worker has a share below 1.
    """
    share = run.scenario.resources.gpus_per_host
    totals = [int(host["gpu_memory"]) for host in hosts if "gpu_memory" in host]
    if not (0 < share < 1 and totals):
        return None
    try:
        largest = max(plan_memory(run), key=lambda plan: plan.total)
    except Exception as error:  # a user's network or loss may do anything
        return (
            f"GPU memory is not planned: the network or task does not work with fake tensors ({type(error).__name__})"
        )
    room = share * min(totals) - CONTEXT_BYTES
    if largest.total <= room:
        return None
    model, batch, samples = (f"{size / 1e9:.2g}" for size in (largest.model, largest.batch, largest.samples))
    return (
        f"phase {largest.phase} needs at least {largest.total / 1e9:.2g} GB of GPU memory in each worker (model "
        f"{model}, a batch {batch}, samples {samples}), but resources.gpus_per_host={share:g} leaves "
        f"{room / 1e9:.2g} GB: use larger shares, a smaller local.batch_size or evaluation.batch_size, or fewer "
        "numerics.clients_at_once"
    )


def plan_memory(run: RunPlan) -> list[MemoryPlan]:
    """Plans every phase of a run.

    Raises:
        Exception: Code of the network or of the task does not work with fake tensors, for instance as it reads values.
    """
    cuda, distinct = torch.device("cuda"), list({id(one): one for one in run.workloads}.values())
    samples = sum(source.reserved_bytes for source in batch_sources(run.scenario, distinct, cuda).values())
    held = {id(one): 4 * (len(one.initial.vector) + one.initial.num_params) for one in distinct}
    plans = []
    for plan, workload in zip(run.phases, run.workloads, strict=True):
        others = sum(held.values()) - held[id(workload)]  # the resident models of other phases
        model, batch = _of_phase(run.scenario, plan.phase.local, workload)
        plans.append(MemoryPlan(plan.phase.name, model + others, batch, samples))
    return plans


def _of_phase(scenario: Scenario, local: Local, workload: Workload) -> tuple[int, int]:
    """Bytes of the model and of a batch."""
    initial, at_once = workload.initial, scenario.numerics.clients_at_once
    network = build_network(scenario, workload.network, workload.store, workload.num_outputs)
    source = BatchSource(workload.store, torch.device("cpu"), ignored_label=workload.task.ignored_label)
    rngs = [np.random.default_rng(0) for _ in range(workload.task.views)]
    ((views, y),) = source.training_views(np.arange(1), 1, rngs, source.varies)
    most = int(workload.population.sizes.max())
    size = most if local.batch_size == "full" else min(local.batch_size, most)
    scored = min(workload.evaluation.batch_size, len(workload.store.test))
    values, state = len(initial.vector), round(optimizer_bytes(local) * initial.num_params)
    step = _batch_bytes(network, workload.task, views, y, size * at_once, local.precision)
    training = step + at_once * (state + (STACKED * values if at_once > 1 else 0))
    scoring = _batch_bytes(network, None, views[:1], y, scored)
    answering = (ANSWER + TRAINED * at_once) * values
    return HELD * values + initial.constants.nbytes, max(training, scoring, answering)


def _batch_bytes(
    network: nn.Module, task: Task | None, views: Sequence[Any], y: torch.Tensor, size: int, precision: str = "float32"
) -> int:
    """Bytes of a step of training, or of an evaluation without a task, beside parameters and gradients.

    An objective of the task's own counts as a pass of every view. `views` and `y` are those of one sample.
    """
    with FakeTensorMode(), LiveBytes() as live:
        tensors = {name: _fake(one) for name, one in [*network.named_parameters(), *network.named_buffers()]}
        for name, parameter in network.named_parameters():
            if task is not None and parameter.requires_grad:
                tensors[name].requires_grad_().grad = _fake(parameter)
        before = live.peak = live.now
        inputs = [tree_map_only(torch.Tensor, lambda one: _fake(one, size), view) for view in views]
        labels = _fake(y, size)
        network.train(task is not None)
        low = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
        with torch.set_grad_enabled(task is not None), low:
            outputs = [functional_call(network, tensors, (x,)) for x in inputs]
            if task is not None and type(task).objective is Task.objective:
                loss = task.loss(outputs[0], labels)
            else:
                loss = torch.stack([one.float().square().mean() for one in tree_leaves(outputs)]).sum()
        if task is not None:
            torch.autograd.backward(loss)
        return int(live.peak - before)


def _fake(like: torch.Tensor, rows: int | None = None) -> torch.Tensor:
    shape = like.shape if rows is None else (rows, *like.shape[1:])
    return torch.empty(shape, dtype=like.dtype)


def optimizer_bytes(local: Local) -> float:
    """Bytes that the optimizer of local training keeps for each parameter."""
    if local.is_plain_sgd:
        return 4.0 if local.momentum else 0.0
    parameter = nn.Parameter(torch.zeros(64, 64))
    parameter.grad = torch.ones_like(parameter)
    optimizer = build_optimizer(local.optimizer, local, [parameter], "local.optimizer")
    optimizer.step()
    kept = [one for one in tree_leaves([*optimizer.state.values()]) if isinstance(one, torch.Tensor) and one.ndim]
    return sum(one.nbytes for one in kept) / parameter.numel()

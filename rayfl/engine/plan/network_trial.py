"""Tries a network before the run: its outputs, a step of training, state from batch to batch, frozen parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.checks import CHANNELS, how_to_make_images
from rayfl.data.store import ShardStore
from rayfl.data.tensors import Input
from rayfl.engine.initial_model import build_network
from rayfl.engine.plan.fixed_part import Trainings, fixed_part
from rayfl.engine.plan.network_outputs import (
    TaskError,
    TriedBatch,
    check_outputs,
    check_scalar,
    generators_restored,
    how_to_set_width,
    keeps_state,
    num_outputs_of,
    resized_batches,
    same_results,
    shapes_of,
    task_errors,
    tensors_of,
)
from rayfl.engine.plan.slices import Slice
from rayfl.engine.scoring import evaluation_batches
from rayfl.errors import RayflError, ScenarioError
from rayfl.local.batches import TrainingBatch
from rayfl.local.client_state import ClientState
from rayfl.local.context import ClientContext, ClientFacts, ClientNetwork, ClientStreams, UpdatePlan
from rayfl.models.attributes import Attribute, Values, changed, is_generator, values_of
from rayfl.models.constants import changes_constant, is_trainable
from rayfl.models.feature_layer import head_of
from rayfl.models.flat import FlatModel
from rayfl.models.network import NoImagesError
from rayfl.models.tensors import Slot, followed
from rayfl.tasks.task import Task
from rayfl.wording import report_as_theirs

SAMPLES = 2
"""Number of samples in a tried batch."""

SHIFT = 0.1
"""Added to the trained parameters in a trial, so that what follows them has a difference to follow."""


def build_checked(
    scenario: Scenario,
    phase: Phase,
    store: ShardStore,
    build_task: Callable[[], Task],
    key: str = "model",
    trainings: Trainings = ("all",),
    moving: frozenset[str] = frozenset(),
) -> tuple[FlatModel, frozenset[str]]:
    """Builds a phase's flat initial model on the CPU, and tries it and the task on two samples.

    4-D weights are stored channels-last on the CPU, unless that is why the network or the task fails:
    `weight.view(-1)` needs contiguous weights.

    Args:
        scenario: The scenario.
        phase: The phase.
        store: Its data.
        build_task: Builds its task.
        key: The key that names its network.
        trainings: As for `fixed_part`.
        moving: Likewise; what the trial itself finds is added.

    Returns:
        The model, and the names of what is in no message: buffers that nothing moves, and frozen parameters.

    Raises:
        ScenarioError: The network does not accept the inputs, or its output does not fit the task; or one of them
            changes a constant, or keeps state from batch to batch in an attribute.
    """

    def trial(channels_last: bool) -> _Trial:
        return _Trial((scenario, phase, store, build_task()), key, (trainings, moving), channels_last)

    # on an H200, ResNet-18 in float32 took 1.25 times as long channels-last, LeNet-5 1.04 to 1.13 times
    tried = trial(channels_last=not scenario.resources.uses_cuda)
    failure = tried.begin()
    if failure is not None and tried.model.channels_last:
        contiguous = trial(channels_last=False)
        if contiguous.model.layout != tried.model.layout and contiguous.begin() is None:
            tried, failure = contiguous, None
    if isinstance(failure, ScenarioError):
        raise failure
    tried.check_attributes(lambda: trial(tried.model.channels_last))
    frozen, moved = tried.frozen(), tried.moved_constants()
    if not moved:
        return tried.model, frozen
    for slot in moved:
        if not is_trainable(tried.model.module.get_parameter(slot.name)):
            raise ScenarioError(changes_constant(slot.name))
    moving = moving.union(name for slot in moved for name in slot.names)
    return build_checked(scenario, phase, store, build_task, key, trainings, moving)


class _Trial:
    """A new network and task, tried on batches of two samples; every batch begins with the initial buffers.

    Attributes:
        model: The network.
    """

    def __init__(
        self,
        tried: tuple[Scenario, Phase, ShardStore, Task],
        key: str,
        trained: tuple[Trainings, Collection[str]],
        channels_last: bool,
    ) -> None:
        self._scenario, self._phase, self._store, self._task = scenario, phase, store, task = tried
        network = scenario.model_of(phase)
        self._as_images = "" if store.collate else how_to_make_images(store.train.x)
        self._num_outputs = num_outputs_of(task, store)
        try:
            built = build_network(scenario, network, store, self._num_outputs)
        except NoImagesError as error:
            raise ScenarioError(f"{error}{self._as_images}") from None
        try:
            task.check_network(built)
        except ScenarioError as error:
            raise ScenarioError(f"{key} '{network.name}': {error}") from None
        self._fixed = fixed_part(built, *trained)
        self.model = FlatModel(built, torch.device("cpu"), channels_last, self._fixed.constants)
        self._buffers = frozenset(name for name, _ in built.named_buffers(remove_duplicate=False))
        self._constants = self.model.constants.digests()
        self._infinite = {name: built.get_buffer(name).nan_to_num() for name in self.model.constant_names}  # copies
        self._source = BatchSource(store, torch.device("cpu"), ignored_label=task.ignored_label)
        self._where = f"{key} '{network.name}' on {store.name}"
        self._width = how_to_set_width(network, self._num_outputs, key)
        # an objective of one's own may need more of a batch or a client than a trial has, and the run shows whether it
        # works; without the task, what the network keeps can still be tried
        self._own_objective = type(task).objective is not Task.objective
        self._task_works = True
        self._first: Sequence[TriedBatch] = ()

    def begin(self) -> Exception | None:
        """Tries the network's outputs, then a step of training and an evaluation.

        Returns:
            A ScenarioError if the network does not fit; another exception if the task's own code raised, which its
            other checks or the run report.
        """
        self._before = self._values()
        try:
            with self.model.elsewhere(self.model.params):  # a layer may initialise itself from the first batch
                self._check_evaluation()
            self._first = self._visit(0)
        except ScenarioError as error:
            return error
        except TaskError as failed:
            self._task_works = False
            try:
                self._first = self._visit(0)
            except ScenarioError as error:
                return failed.error if self._own_objective else error
            return failed.error
        return None

    def check_attributes(self, again: Callable[[], _Trial]) -> None:
        """Looks for attributes of the network or the task that carry something from one batch to another.

        A batch is tried after batches of its own mode, after one of the other mode, and on a new network. What is
        merely computed from the current batch (attention weights) or once for all (a cached mask) is the same each
        time. What begins to matter only after more batches, or on other inputs, is not found.

        Args:
            again: Makes another trial, with a new network and task.

        Raises:
            ScenarioError: There is one.
        """
        moved = list(dict.fromkeys(name for seen in self._first for name in changed(self._before, seen.attributes)))
        if not moved:
            return
        stateful: Sequence[Attribute] | None = None
        with suppress(Exception):
            stateful = self._kept(moved, again)
        if stateful is None:  # a step raised, because of its samples or of what was kept before
            if not self._another(again)._works_on_other_samples():
                self._check_without_task(again)
                return
            stateful = moved
        if stateful:
            draws = is_generator(self._first[0].attributes, stateful[0])
            raise ScenarioError(keeps_state(stateful[0], draws, self._where, self._task.name))

    def frozen(self) -> frozenset[str]:
        """Names the integer and boolean buffers that nothing moves, and frozen parameters in the vector.

        Modules that follow others (`Network.copies`) are moved by their task. Whatever else moves, constants included,
        shows in a step of training and an evaluation with other values of the trained parameters.
        """
        model, copies = self.model, getattr(self.model.module, "copies", {})
        discrete = [name for name in model.discrete_names if not followed(name, copies)]
        if not model.constants.slots and not discrete:
            return self._fixed.in_vector
        flags = model.discrete()
        try:
            with generators_restored(), model.elsewhere(model.params + SHIFT):
                self._train(0)
                self._evaluate(0)
                flags_after = model.discrete()
        except (RayflError, TaskError):  # left to the run, as in `begin`; none is known to be frozen
            return self._fixed.in_vector
        finally:
            model.zero_gradient()
            model.module.eval()
        return self._fixed.in_vector.union(name for name in discrete if torch.equal(flags[name], flags_after[name]))

    def moved_constants(self) -> list[Slot]:
        """The constants that a batch has changed, be it by a way that PyTorch does not count (`.data`)."""
        constants = self.model.constants
        moved, now = set(self.model.changed_constants()), constants.digests()
        return [slot for slot in constants.slots if slot.name in moved or now[slot.name] != self._constants[slot.name]]

    def _check_without_task(self, again: Callable[[], _Trial]) -> None:
        if self._task_works:
            self._task_works = False
            without = self._another(again)
            if without.begin() is None:
                without.check_attributes(again)

    def _another(self, again: Callable[[], _Trial]) -> _Trial:
        new = again()
        new._task_works = self._task_works
        return new

    def _works_on_other_samples(self) -> bool:
        """Tries the other samples; False if the task's code raises, which is left to the run as in `begin`."""
        part = self._test_samples(1)
        try:
            self._seen(self._train, 1)
            with generators_restored(), self.model.elsewhere(self.model.params):
                self.model.module.eval()
                self._try(*self._source.test_batch(slice(part.start, part.stop)), self._where)
            self._seen(self._evaluate, 1)
        except TaskError:
            return False
        return True

    def _kept(self, moved: Sequence[Attribute], again: Callable[[], _Trial]) -> list[Attribute]:
        first, second = self._first, self._visit(1)
        # an evaluation may reset what the next training step would find, and the reverse, so each follows its own kind
        trained = [self._seen(self._train, number) for number in (0, 1)]
        evaluated = [self._seen(self._evaluate, number) for number in (1, 0)]
        pairs = [(first[0], trained[0]), (second[0], trained[1]), (second[1], evaluated[1])]
        stateful = [name for one, other in pairs for name in changed(one.attributes, other.attributes)]
        if stateful:
            return stateful
        # the evaluated samples are the same after both batches
        if not all(same_results(*pair) for pair in [*pairs, (first[1], second[1])]):
            return list(moved)
        fresh = self._another(again)._visit(1)  # begins with another batch than this trial did
        # only after the evaluation have both seen inputs of all shapes
        stateful = [name for name in changed(second[1].attributes, fresh[1].attributes) if name in moved]
        if not stateful and not all(same_results(*pair) for pair in zip(second, fresh, strict=True)):
            return list(moved)
        return stateful

    def _visit(self, number: int) -> tuple[TriedBatch, TriedBatch]:
        """Trains on a batch, then evaluates."""
        return self._seen(self._train, number), self._seen(self._evaluate)

    def _seen(self, step: Callable[[int], list[torch.Tensor]], number: int = 0) -> TriedBatch:
        with generators_restored(), self.model.elsewhere(self.model.params):
            results = [one.detach().clone() for one in step(number)]
            self._check_infinite_buffers()
        self.model.zero_gradient()
        return TriedBatch(results, self._values())

    def _values(self) -> Values:
        return values_of(self._buffers, model=self.model.module, task=self._task)

    def _check_infinite_buffers(self) -> None:
        """Checks that buffers with infinities, which `FlatModel.load` resets, are constants such as attention masks."""
        for name, initial in self._infinite.items():
            if not torch.equal(initial, self.model.module.get_buffer(name).nan_to_num()):
                raise ScenarioError(
                    f"{self._where}: buffer '{name}' begins with infinities or NaN and changes, and such values have "
                    "no mean over clients; begin with finite ones, or register it with persistent=False, and every "
                    "client update starts anew"
                )

    def _train(self, number: int) -> list[torch.Tensor]:
        views, y = self._training_batch(number)
        module, task, where = self._fixed.training(self.model.module), self._task, f"{self._where}, in training mode"
        self.model.zero_gradient()
        if self._own_objective and self._task_works:
            client = self._client()
            with task_errors():
                loss = task.objective(TrainingBatch(module, client, views, y, lambda _: [], self._reads_features))
            check_scalar(loss, task)
            with task_errors():
                torch.autograd.backward(loss)
                with torch.no_grad():
                    task.after_step(module, client)
            return [loss, self.model.gradient.norm()]
        outputs = self._forward(views[0], where)
        if not self._own_objective:
            check_outputs(outputs, y, task, self._num_outputs, where)
        if not self._task_works:
            return [one for one in [outputs] if isinstance(one, torch.Tensor)]
        with task_errors():
            loss = task.loss(outputs, y)
        check_scalar(loss, task)
        try:
            torch.autograd.backward(loss)
        except Exception as error:
            raise ScenarioError(report_as_theirs(error, f"{where}: the backward pass")) from None
        if type(task).after_step is not Task.after_step:
            with task_errors(), torch.no_grad():
                task.after_step(module, self._client())
        return [loss, self.model.gradient.norm()]

    def _evaluate(self, number: int) -> list[torch.Tensor]:
        module, task, part = self.model.module.eval(), self._task, self._test_samples(number)
        (batch,) = evaluation_batches(self._source, module, task, part, SAMPLES, self._scenario.data_seed)
        with torch.no_grad(), task_errors():
            return [task.evaluated(batch) if self._task_works else module(batch.x)]

    def _check_evaluation(self) -> None:
        """Tries two test samples in evaluation mode, and augmented training samples of another shape."""
        self.model.module.eval()
        x, y = self._source.test_batch(slice(0, SAMPLES))
        self._try(x, y, self._where, self._width)
        for augmented, labels in resized_batches(self._source, self._store, shapes_of(x)):
            self._try(augmented, labels, f"{self._where}, augmented")

    def _try(self, x: Input, y: torch.Tensor, where: str, width: str = "") -> None:
        with torch.no_grad():
            outputs = self._forward(x, where)
        check_outputs(outputs, y, self._task, self._num_outputs, where, width)

    def _forward(self, x: Input, where: str) -> Any:
        try:
            return self.model.module(x)
        except RayflError:
            raise
        except (Exception, SystemExit) as error:  # a user's network may raise anything on unexpected inputs
            line, *rest = report_as_theirs(error, f"{where}: a batch of inputs {shapes_of(x)}").split("\n", 1)
            if isinstance(x, torch.Tensor) and x.ndim == 4 and x.shape[1] not in CHANNELS:
                line += self._as_images
            elif "long" in str(error).lower() and any(one.dtype == torch.int64 for one in tensors_of(x).values()):
                line += "; integers reach the network as int64: give measurements as x.astype('float32')"
            raise ScenarioError("\n".join([line, *rest])) from None

    @property
    def _reads_features(self) -> bool:
        return self._task.reads_features and head_of(self.model.module) is not None

    def _training_batch(self, number: int) -> tuple[tuple[Input, ...], torch.Tensor]:
        """The inputs of every view, and the labels, of the first two samples or of two others of the same shape."""
        length = len(self._store.train)
        places = [np.array([0, 1]) % length, np.array([length // 2, length - 1])]
        if number and shapes_of(self._views(places[1])[0][0]) != shapes_of(self._views(places[0])[0][0]):
            return self._views(places[0][::-1].copy())
        return self._views(places[number])

    def _test_samples(self, number: int) -> Slice:
        """The first two test samples, or the next two if there are any, of the same shape."""
        first, other = (Slice(start, min(start + SAMPLES, len(self._store.test))) for start in (0, SAMPLES))
        if not number or len(self._store.test) < other.start + SAMPLES:
            return first
        shapes = [shapes_of(self._source.test_batch(slice(part.start, part.stop))[0]) for part in (first, other)]
        return other if shapes[0] == shapes[1] else first

    def _views(self, rows: np.ndarray) -> tuple[tuple[Input, ...], torch.Tensor]:
        rngs = [np.random.default_rng(view) for view in range(self._task.views)]
        ((views, y),) = self._source.training_views(rows, SAMPLES, rngs, self._source.varies)
        return tuple(views), y

    def _client(self) -> ClientContext:
        """A client, as a task's objective sees it."""
        sizes, local, model = self._store.train_shards.sizes, self._phase.local, self.model
        streams = ClientStreams(self._scenario.seed, 0, 1, 0, 0)
        state = ClientState({}, frozenset(self._task.client_state()))
        facts = ClientFacts(0, int(sizes[0]), float(sizes[0] / sizes.mean()), streams, state, 0.0 if local.dp else None)
        network = ClientNetwork(model, model.buffers.clone(), lambda _: model.vector.clone())
        client = ClientContext(UpdatePlan(local, local.lr, first_model=model.vector.clone()), facts, network)
        client.sent = (model.vector.clone(),)
        return client

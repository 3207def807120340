"""A host: a long-lived worker with one resident model, which trains any of its clients, one visit after another."""

from __future__ import annotations

import math
import platform
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from rayfl.algorithms.building import build_algorithms
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.fedavg import FedAvg
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource, to_tensor
from rayfl.data.store import ShardStore
from rayfl.engine.client_states import ClientStates, State
from rayfl.engine.device import choose_device, seed_torch
from rayfl.engine.evaluation import Score, Slice
from rayfl.engine.events import Traffic
from rayfl.engine.network import build_network
from rayfl.engine.reduction import HostAnswers, Reduction
from rayfl.engine.turn import Turn, VisitReport
from rayfl.errors import ClientError, RayflError
from rayfl.local.client import Client
from rayfl.models.flat import FlatModel
from rayfl.streams import torch_seed

T = TypeVar("T")


class Host:
    """Holds the node's copy of the data, the states of its clients, and one resident model.

    index: the host's number, which errors name.
    """

    def __init__(self, index: int, scenario: Scenario, store: ShardStore) -> None:
        torch.set_num_threads(scenario.numerics.threads)
        self._index, self._scenario = index, scenario
        self._device = choose_device(scenario.resources)
        self._model = FlatModel(build_network(scenario, store), self._device)
        self._batches = BatchSource(store, self._device)
        self._algorithms = build_algorithms(scenario)
        self._states: tuple[int, ClientStates] = (0, ClientStates())

    def describe(self) -> dict[str, str]:
        """Where this host is: node, device."""
        name = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else platform.processor()
        return {"host": str(self._index), "node": platform.node(), "device": str(self._device), "processor": name}

    def answer(self, turn: Turn, clients: Sequence[int], exchange: Exchange) -> tuple[HostAnswers, VisitReport]:
        """Puts one exchange of a parallel round to some clients; their answers come back as sums.

        Raises:
            ClientError: the first visit that failed.
        """
        send = [to_tensor(vector, slice(None), self._device) for vector in exchange.send]
        reduction = Reduction(self._scenario.numerics.fraction_bits)
        visits = _VisitCount(self._model)

        def visit(client: Client) -> None:
            answer: Answer = exchange.ask(client, *send)
            if any(vector._version for vector in send):
                raise RayflError("its visit changed a vector that was sent to all clients; work on a copy")
            reduction.add(answer)
            visits.count(client, [*send, *answer.values.values(), *answer.sums.values()])

        for client in clients:
            self._visit(turn, client, visit, again=exchange.number > 0)
        return reduction.result(), visits.report()

    def relay(self, turn: Turn, clients: Sequence[int], model: np.ndarray) -> tuple[np.ndarray, VisitReport]:
        """A leg of a relay: each client trains from what the one before it left. Returns the last model vector.

        Raises:
            ClientError: the first visit that failed.
        """
        algorithm = self._algorithms[turn.phase]
        visits = _VisitCount(self._model)

        def visit(client: Client) -> torch.Tensor:
            left = algorithm.local_update(client, vector).clone()
            if left.shape != vector.shape or not bool(torch.isfinite(left).all()):
                raise RayflError("its local update left no model: another length, or values that are not finite")
            visits.count(client, [vector, left])
            return left

        vector = to_tensor(model, slice(None), self._device)
        for client in clients:
            vector = self._visit(turn, client, visit)
        return vector.cpu().numpy(), visits.report()

    def commit(self, turn: Turn, clients: Sequence[int]) -> None:
        """The round is over: what its visits left in the states of these clients is kept."""
        self._states_of(turn).commit(clients)

    def evaluate(self, turn: Turn, model: np.ndarray, slices: Sequence[Slice]) -> list[Score]:
        """Scores of a model vector on slices of the test examples.

        Raises:
            ClientError: personalisation of a client failed.
        """
        vector = to_tensor(model, slice(None), self._device)
        try:
            self._model.load(vector)
            scores = [self._score(part) for part in slices if not part.personalized]
        except Exception:  # a user's network may raise anything
            raise RayflError(f"the evaluation on host {self._index} raised\n{traceback.format_exc()}") from None
        return scores + [self._personalized(turn, vector, part) for part in slices if part.personalized]

    def _personalized(self, turn: Turn, vector: torch.Tensor, part: Slice) -> Score:
        """The score after local training on the client's own examples; its random streams are those of no phase."""
        local, seed, phase = self._scenario.evaluation.personalize, self._scenario.seed, len(self._scenario.phases)
        assert local is not None
        try:
            seed_torch(torch_seed(seed, "model", phase, turn.round, part.client), self._device)
            client = Client(part.client, self._batches, self._model, local, local.lr, seed, phase, turn.round, state={})
            client.train(vector, FedAvg())
            return self._score(part)
        except RayflError as error:
            raise ClientError(part.client, self._index, "personalisation", turn.round, str(error)) from None
        except Exception:
            detail = "its code raised\n" + traceback.format_exc()
            raise ClientError(part.client, self._index, "personalisation", turn.round, detail) from None

    def _score(self, part: Slice) -> Score:
        self._model.module.eval()
        loss, correct, size = 0.0, 0, self._scenario.evaluation.batch_size
        for start in range(part.start, part.stop, size):
            x, y = self._batches.test_batch(slice(start, min(start + size, part.stop)))
            with torch.inference_mode():
                logits = self._model.module(x)
                loss += float(F.cross_entropy(logits, y, reduction="sum"))
                correct += int((logits.argmax(dim=1) == y).sum())
        return Score(part, loss, correct)

    def _visit(self, turn: Turn, client_id: int, run: Callable[[Client], T], again: bool = False) -> T:
        """One visit, of which nothing is left from the one before; whatever goes wrong in it becomes a ClientError."""
        phase = turn.config(self._scenario)
        try:
            stateful = self._algorithms[turn.phase].keeps_state()
            states = self._states_of(turn)
            state: State = states.open(client_id, turn.round_in_phase - 1, self._device, again) if stateful else {}
            self._model.module.train()
            seed_torch(torch_seed(self._scenario.seed, "model", turn.phase, turn.round, client_id), self._device)
            client = Client(
                id=client_id,
                source=self._batches,
                model=self._model,
                local=phase.local,
                lr=turn.lr(self._scenario),
                seed=self._scenario.seed,
                phase=turn.phase,
                round=turn.round,
                state=state,
            )
            result = run(client)
            if stateful:
                states.stage(client_id, client.state)
            return result
        except RayflError as error:
            raise ClientError(client_id, self._index, phase.name, turn.round, str(error)) from None
        except (Exception, SystemExit):  # a client's own code may raise anything, and the run must say where
            detail = "its code raised\n" + traceback.format_exc()
            raise ClientError(client_id, self._index, phase.name, turn.round, detail) from None

    def _states_of(self, turn: Turn) -> ClientStates:
        """States live as long as their phase."""
        if self._states[0] != turn.phase:
            self._states = (turn.phase, ClientStates())
        return self._states[1]


class _VisitCount:
    """Adds up the reports of a host's visits. A vector of all parameters is one transfer, counted without padding."""

    def __init__(self, model: FlatModel) -> None:
        self._values_of_models = {
            len(model.params): model.num_params,
            len(model.vector): model.num_params + model.num_buffer_values,
        }
        self._loss_sums: list[float] = []
        self._steps = 0
        self._traffic = Traffic()

    def count(self, client: Client, moved: Sequence[torch.Tensor]) -> None:
        models = sum(len(vector) in self._values_of_models for vector in moved)
        values = sum(self._values_of_models.get(len(vector), len(vector)) for vector in moved)
        self._traffic += Traffic(models, 4 * values)
        self._loss_sums.append(math.fsum(client.losses))
        self._steps += len(client.losses)

    def report(self) -> VisitReport:
        return VisitReport(tuple(self._loss_sums), self._steps, self._traffic)

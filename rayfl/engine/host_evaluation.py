"""A host's part of an evaluation: scores of the global model, of personal models, and after personalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import torch

from rayfl.config.scenario import Scenario
from rayfl.data.tensors import to_tensor
from rayfl.engine.client_updates import UpdateErrors
from rayfl.engine.device import device_limits_explained
from rayfl.engine.plan.phase_plan import PhasePlan, scores_personal_models
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.slices import Slice
from rayfl.engine.resident import Resident
from rayfl.engine.scoring import Score
from rayfl.engine.state.client_states import ClientStates
from rayfl.errors import RayflError
from rayfl.interruption import is_of_user_code
from rayfl.local.client_state import ClientState, Values, on_device
from rayfl.local.context import ClientContext, ClientStreams, UpdatePlan
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.models.tensors import SentModel, all_finite, constants_of, split
from rayfl.wording import their_traceback


class HostEvaluation:
    """Scores models on a host.

    Args:
        host: The host's number, for errors.
        scenario: The scenario.
        plans: One per phase.
        residents: One per phase.
        states: The states of the host's clients.
        device: Device of the resident models.
    """

    def __init__(
        self,
        host: int,
        scenario: Scenario,
        plans: Sequence[PhasePlan],
        residents: Sequence[Resident],
        states: ClientStates,
        device: torch.device,
    ) -> None:
        self._host, self._scenario, self._device = host, scenario, device
        self._plans, self._residents, self._states = plans, residents, states

    def scores(
        self, round_index: RoundIndex, model: SentModel, slices: Sequence[Slice], committed: Mapping[int, int] | None
    ) -> list[Score]:
        """Scores a model on slices; see `Host.evaluate`."""
        received, beside = split(model)
        self._residents[round_index.phase].hold(constants_of(model))
        vector, discrete = to_tensor(received, slice(None), self._device), on_device(beside, self._device)
        personal: list[Score] = []
        if scores_personal_models(self._scenario, self._plans[round_index.phase]):
            own = [part for part in slices if part.client >= 0]
            personal = self._of_personal_models(round_index, vector, discrete, own, committed)
            slices = [part for part in slices if part.client < 0]
        common = [part for part in slices if not part.personalized]
        shared = self._of_global_model(round_index, vector, discrete, common)
        after_training = [part for part in slices if part.personalized]
        return personal + shared + [self._personalized(round_index, vector, discrete, part) for part in after_training]

    def _of_global_model(
        self, round_index: RoundIndex, vector: torch.Tensor, discrete: Values, slices: Sequence[Slice]
    ) -> list[Score]:
        resident = self._residents[round_index.phase]
        try:
            with device_limits_explained():
                resident.model.load(vector, discrete)
                return [resident.score(part, vector, discrete) for part in slices]
        except RayflError:
            raise
        except BaseException as error:  # a user's network may raise anything
            if not is_of_user_code(error):
                raise
            raise RayflError(f"the evaluation on worker {self._host} raised\n{their_traceback(error)}") from None

    def _of_personal_models(
        self,
        round_index: RoundIndex,
        vector: torch.Tensor,
        discrete: Values,
        slices: Sequence[Slice],
        committed: Mapping[int, int] | None,
    ) -> list[Score]:
        """Scores every client's personal model on its slices, built from its state after the round."""
        plan, resident = self._plans[round_index.phase], self._residents[round_index.phase]
        expected = (committed or {}) if plan.keeps_client_state else None
        update = UpdatePlan(plan.phase.local, round_index.lr(self._scenario))
        errors = UpdateErrors(self._host, plan.phase.name, round_index.round)
        scores = []
        for client_id, parts in groupby(slices, key=lambda part: part.client):
            with errors.of_client(client_id):
                tensors = self._states.kept(client_id, plan.number, expected, self._device)
                streams = ClientStreams(self._scenario.seed, len(self._plans), round_index.round, 0, client_id)
                state = ClientState(tensors, frozenset(plan.client_state))
                client = resident.context(client_id, update, streams, state, discrete=discrete)
                personal = plan.algorithm.personal_model(client, vector)
                if personal.shape != vector.shape or not all_finite(personal):
                    raise RayflError(
                        "its personal_model must return a model: a vector of the same length, with finite values only"
                    )
                own = client.discrete.values
                resident.model.load(personal, own)
                scores += [resident.score(part, personal, own) for part in parts]
                client.close()
        return scores

    def _personalized(self, round_index: RoundIndex, vector: torch.Tensor, discrete: Values, part: Slice) -> Score:
        """Scores the model after local training on the client's samples, with random streams that no phase uses."""
        resident = self._residents[round_index.phase]
        local = resident.workload.evaluation.personalize
        assert local is not None
        streams = ClientStreams(self._scenario.seed, len(self._scenario.phases), round_index.round, 0, part.client)

        def update(_: ClientContext) -> ClientUpdate[torch.Tensor]:
            trained: torch.Tensor = yield LocalTraining(vector)
            return trained

        errors = UpdateErrors(self._host, "personalisation", round_index.round)
        with errors.of_client(part.client):
            update_plan = UpdatePlan(local, local.lr, train=(local.train,))
            client = resident.context(part.client, update_plan, streams, discrete=discrete)
            (trained,) = resident.updates(local).run([client], update, errors)
            own = client.discrete.values
            resident.model.load(trained, own)
            return resident.score(part, trained, own)

"""python -m tools.peers.pfl_fedavg: the experiment with pfl-research."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from tools.peers.task import BATCH, CLIENTS, COHORT, EPOCHS, EVERY, RATE, ROUNDS, Network, samples


class WithLoss(Network):
    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Any]:
        return {"accuracy": Weighted(float((self(x).argmax(1) == y).sum()), len(y))}


class Evaluation(TrainingProcessCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.test = Dataset([*samples(None)])

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        if (central_iteration + 1) % EVERY == 0:
            accuracy = model.evaluate(self.test).to_simple_dict(to_lowercase=True)["accuracy"]
            print(f"round {central_iteration + 1}: accuracy {100 * accuracy:.2f} %", flush=True)
        return False, Metrics()


def of_user(user: int) -> Any:
    return Dataset([*samples(user)], user_id=user)


if __name__ == "__main__":
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  pfl draws users from it
    network = WithLoss()
    users = FederatedDataset(of_user, get_user_sampler("minimize_reuse", range(CLIENTS)))
    FederatedAveraging().run(
        NNAlgorithmParams(ROUNDS, evaluation_frequency=10**9, train_cohort_size=COHORT, val_cohort_size=None),
        SimulatedBackend(training_data=users, val_data=users, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0)),
        NNTrainHyperParams(local_num_epochs=EPOCHS, local_batch_size=BATCH, local_learning_rate=RATE),
        callbacks=[Evaluation()],
        send_metrics_to_platform=False,
    )

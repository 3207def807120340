"""python pfl_rounds.py CLIENTS COHORT ROUNDS: FedAvg with pfl-research, which prints a line after every round."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

EACH, VALUES, CLASSES, WIDTH = 4, 4, 3, 12


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(VALUES, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, CLASSES)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(x)
        return logits

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Any]:
        return {"loss": Weighted(float(self.loss(x, y).detach()) * len(y), len(y))}


class Says(TrainingProcessCallback):  # type: ignore[misc]
    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        print("round", central_iteration + 1, flush=True)
        return False, Metrics()


def main() -> None:
    clients, cohort, rounds = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((clients, EACH, VALUES)).astype(np.float32)
    y = x[:, :, :CLASSES].argmax(2)

    def dataset(user: int) -> Any:
        return Dataset([torch.from_numpy(x[user]), torch.from_numpy(y[user])], user_id=user)

    network = Network()
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    data = FederatedDataset(dataset, get_user_sampler("random", range(clients)))
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, evaluation_frequency=10**9, train_cohort_size=cohort, val_cohort_size=None),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(local_batch_size=1, local_num_epochs=None, local_learning_rate=0.01, local_num_steps=1),
        callbacks=[Says()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()

"""python -m tools.peers.fluke_fedavg: the experiment with fluke."""

from __future__ import annotations

from typing import Any

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver, ServerObserver
from torchmetrics import Accuracy

from tools.peers.task import BATCH, CLASSES, CLIENTS, COHORT, EPOCHS, EVERY, RATE, ROUNDS, Network, samples


class Evaluation(ServerObserver, FederationObserver):  # type: ignore[misc]
    def server_evaluation(self, round: int, eval_type: str, evals: dict[str, float], **kwargs: Any) -> None:
        if evals and round % EVERY == 0:
            print(f"round {round}: accuracy {100 * evals['accuracy']:.2f} %", flush=True)


def loader(client: int | None) -> Any:
    batch = 512 if client is None else BATCH
    return FastDataLoader(*samples(client), num_labels=CLASSES, batch_size=batch, shuffle=client is not None)


if __name__ == "__main__":
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_evaluator(ClassificationEval(EVERY, CLASSES, accuracy=Accuracy("multiclass", num_classes=CLASSES)))
    clients = [loader(client) for client in range(CLIENTS)]
    data = DataSplitter(DummyDataContainer(clients, [None] * CLIENTS, loader(None), CLASSES))
    settings = DDict(
        model=Network(),
        client={
            "batch_size": BATCH,
            "local_epochs": EPOCHS,
            "loss": "CrossEntropyLoss",
            "optimizer": {"name": "SGD", "lr": RATE},
            "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
            "persistency": False,
        },
        server={"weighted": True},
    )
    algorithm = FedAVG(CLIENTS, data, settings)
    algorithm.set_callbacks(Evaluation())
    algorithm.run(ROUNDS, eligible_perc=COHORT / CLIENTS)

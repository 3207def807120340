"""python flower_rounds.py CLIENTS COHORT ROUNDS: FedAvg with Flower, which prints a line after every round."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

CLIENTS, COHORT, ROUNDS = map(int, sys.argv[1:])
EACH, VALUES, CLASSES, WIDTH = 4, 4, 3, 12
CPUS = 2


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(VALUES, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, CLASSES))


client_app = ClientApp()
server_app = ServerApp()


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Any, context: Any) -> Any:
    torch.set_num_threads(1)
    rng = np.random.default_rng(context.node_config["partition-id"])
    x = torch.from_numpy(rng.standard_normal((EACH, VALUES)).astype(np.float32))
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = torch.nn.functional.cross_entropy(model(x[:1]), x[:1, :CLASSES].argmax(1))
    torch.autograd.backward(loss)
    torch.optim.SGD(model.parameters(), lr=0.01).step()
    metrics = MetricRecord({"loss": float(loss.detach()), "num-examples": 1})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]
def serve(grid: Any, context: Any) -> None:
    strategy = FedAvg(
        fraction_train=COHORT / CLIENTS, fraction_evaluate=0.0, min_train_nodes=COHORT, min_available_nodes=CLIENTS
    )

    def after(server_round: int, arrays: Any) -> None:
        print("round", server_round, flush=True)

    strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=ROUNDS, evaluate_fn=after)


if __name__ == "__main__":
    ray = {"address": "local", "num_cpus": CPUS, "include_dashboard": False}
    backend = {"init_args": ray, "client_resources": {"num_cpus": 1}}
    run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config=backend)

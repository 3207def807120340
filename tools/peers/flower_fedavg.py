"""python -m tools.peers.flower_fedavg: the experiment with Flower."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from tools.peers.task import BATCH, CLIENTS, COHORT, EPOCHS, EVERY, RATE, ROUNDS, Network, samples

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Any, context: Any) -> Any:
    x, y = samples(context.node_config["partition-id"])
    model = Network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        order = torch.randperm(len(y))
        for start in range(0, len(y), BATCH):
            rows = order[start : start + BATCH]
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(model(x[rows]), y[rows]))
            optimizer.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(RecordDict(content), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]
def serve(grid: Any, context: Any) -> None:
    model = Network()
    x, y = samples(None)

    def evaluate(server_round: int, arrays: Any) -> None:
        if server_round and server_round % EVERY == 0:
            model.load_state_dict(arrays.to_torch_state_dict())
            with torch.no_grad():
                accuracy = (model(x).argmax(1) == y).float().mean()
            print(f"round {server_round}: accuracy {100 * accuracy:.2f} %", flush=True)

    strategy = FedAvg(fraction_train=COHORT / CLIENTS, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=ROUNDS, evaluate_fn=evaluate)


if __name__ == "__main__":
    torch.manual_seed(0)
    backend = {"client_resources": {"num_cpus": 1}}
    run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config=backend)

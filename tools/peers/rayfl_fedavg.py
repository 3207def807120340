"""python -m tools.peers.rayfl_fedavg ray|inline: the experiment with rayfl; its records go into the folder RUNS."""

from __future__ import annotations

import os
import sys

import rayfl
from tools.peers.task import BATCH, CLASSES, CLIENTS, COHORT, EPOCHS, EVERY, RATE, ROUNDS

if __name__ == "__main__":
    rayfl.run(
        {
            "title": "FedAvg on handwriting",
            "data": {"name": "handwriting", "clients": CLIENTS, "options": {"classes": CLASSES}},
            "model": {"name": "tools.peers.task:Network"},
            "evaluation": {"every": EVERY},
            "phases": [
                {
                    "name": "federated",
                    "algorithm": "fedavg",
                    "cohort": COHORT,
                    "rounds": ROUNDS,
                    "local": {"epochs": EPOCHS, "batch_size": BATCH, "lr": RATE},
                }
            ],
        },
        backend=sys.argv[1],  # type: ignore[arg-type]
        out=os.environ["RUNS"],
    )

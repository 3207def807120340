"""The mean over all clients of the model that each returned last: what FedDyn's and FedBug's code evaluates as well.

A client that never took part counts with the phase's first model. The server keeps the sum of all changes since then,
so a round costs one vector, whatever the number of clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rayfl.algorithms.exchange import Answers, ServerState

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


def since_last(client: Client, received: torch.Tensor, delta: torch.Tensor) -> dict[str, torch.Tensor]:
    """How the client's last model changes; of one that takes part for the first time, since the received model.

    These are an Answer's `asides`: no protocol sends them.
    """
    last, trained = client.state.get("last"), received + delta
    client.state["last"] = trained
    change = delta if last is None else trained - last
    return {"change_since_last": change, "newcomers": delta.new_full((1,), float(last is None))}


def mean_of_last(server: ServerState, answers: Answers) -> np.ndarray:
    """float32 [length of the model]: the mean; to be asked for before the server's model moves."""
    received = server.model.astype(np.float64)
    first = server.memory.setdefault("first", received)
    change = answers.sums["change_since_last"] + answers.sums["newcomers"] * (received - first)
    server.memory["change"] = server.memory.get("change", np.zeros_like(first)) + change
    mean: np.ndarray = (first + server.memory["change"] / server.num_clients).astype(np.float32)
    return mean

"""FedBABU: only the body is trained; the head keeps its random initial weights until clients fine-tune it.

Oh, Kim and Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from rayfl.algorithms.fedavg import FedAvg
from rayfl.config.local import Train


class FedBABU(FedAvg):
    """FedAvg of the network's body; the head (its feature layer) keeps its initial weights on all clients.

    Evaluating the global model gives the paper's "initial accuracy"; `evaluation.personalize` fine-tunes it for every
    client.

    Example-level DP (`local.dp`): the body's gradients are clipped and noised; the head gets no noise.
    """

    trains_only: ClassVar[Train] = "body"

    weighting: Literal["samples", "uniform"] = "uniform"

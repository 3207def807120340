"""Server optimizers: the server treats the clients' mean change as a negative gradient.

Momentum (FedAvgM): Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, alg. 2: the adaptive optimizers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveFloat

from rayfl.algorithms.server_state import ServerState
from rayfl.config.component import Choice, Component
from rayfl.config.registry import Registry
from rayfl.local.state import Declaration

Decay = Annotated[float, Field(ge=0, lt=1)]

server_optimizers = Registry(
    "server optimizer",
    {
        "sgd": "rayfl.algorithms.fedopt:SGD",
        "momentum": "rayfl.algorithms.fedopt:Momentum",
        "adagrad": "rayfl.algorithms.fedopt:Adagrad",
        "adam": "rayfl.algorithms.fedopt:Adam",
        "yogi": "rayfl.algorithms.fedopt:Yogi",
    },
)


class ServerOptimizer(Component, ABC):
    """Turns the clients' mean change of the parameters into the server's step; derive from it to write your own.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import FedAvg, ServerOptimizer
        >>> class SignStep(ServerOptimizer):
        ...     lr: float = 0.1
        ...
        ...     def step(self, server, delta):
        ...         return self.lr * np.sign(delta)
        >>> SignStep().step(server=None, delta=np.array([2.0, -3.0]))
        array([ 0.1, -0.1])
        >>> algorithm = FedAvg(server_optimizer=SignStep(lr=0.01))
    """

    @abstractmethod
    def step(self, server: ServerState, delta: np.ndarray) -> np.ndarray:
        """Computes the server's step.

        Args:
            server: The server's working copy; it keeps the optimizer's state under the names that `server_state`
                declares.
            delta: float64 [num_params], the clients' mean change.

        Returns:
            float64 [num_params], which is added to the parameters.
        """

    def server_state(self) -> Declaration:
        """Declares the arrays that the server keeps for this optimizer, by name, with their scopes."""
        return {}


class SGD(ServerOptimizer):
    """Plain averaging, scaled: w <- w + lr delta.

    Attributes:
        lr: eta_g, the server's learning rate, above 0; 1 is plain averaging.
    """

    name: str = "sgd"
    lr: PositiveFloat = 1.0

    def step(self, server: ServerState, delta: np.ndarray) -> np.ndarray:
        return delta if self.lr == 1 else self.lr * delta


class Momentum(ServerOptimizer):
    """FedAvgM: m <- beta m + delta, w <- w + lr m.

    Attributes:
        lr: eta_g, the server's learning rate, above 0.
        momentum: beta, from 0 to below 1.
        dampened: Whether to use m <- beta m + (1 - beta) delta instead, as MOON's code does.
    """

    name: str = "momentum"
    lr: PositiveFloat = 1.0
    momentum: Decay = 0.9
    dampened: bool = False

    def step(self, server: ServerState, delta: np.ndarray) -> np.ndarray:
        velocity = self.momentum * server.get("velocity", 0.0) + (1 - self.momentum * self.dampened) * delta
        server.keep("velocity", velocity)
        return self.lr * velocity

    def server_state(self) -> Declaration:
        return {"velocity": "phase"}


class Adaptive(ServerOptimizer):
    """m <- beta_1 m + (1 - beta_1) delta, w <- w + lr m / (sqrt(v) + tau), without bias correction.

    Subclasses define v, which starts at tau^2, the smallest value that the paper allows.

    Attributes:
        lr: eta_g, the server's learning rate, above 0.
        beta_1: Decay of the first moment, from 0 to below 1.
        tau: Degree of adaptivity, above 0.
    """

    lr: PositiveFloat = 0.1
    beta_1: Decay = 0.9
    tau: PositiveFloat = 1e-3

    def step(self, server: ServerState, delta: np.ndarray) -> np.ndarray:
        mean = self.beta_1 * server.get("mean", 0.0) + (1 - self.beta_1) * delta
        second_moment = self.second_moment(server.get("second_moment", self.tau**2), np.square(delta))
        server.keep("mean", mean)
        server.keep("second_moment", second_moment)
        step: np.ndarray = self.lr * mean / (np.sqrt(second_moment) + self.tau)
        return step

    def server_state(self) -> Declaration:
        return {"mean": "phase", "second_moment": "phase"}

    @abstractmethod
    def second_moment(self, before: np.ndarray, squared: np.ndarray) -> np.ndarray:
        """Updates v.

        Args:
            before: float64 [num_params], the previous v.
            squared: float64 [num_params], delta^2.

        Returns:
            float64 [num_params], the new v.
        """


class Adagrad(Adaptive):
    """FedAdagrad: v <- v + delta^2; beta_1 = 0 as in the paper."""

    name: str = "adagrad"
    beta_1: Decay = 0.0

    def second_moment(self, before: np.ndarray, squared: np.ndarray) -> np.ndarray:
        after: np.ndarray = before + squared
        return after


class Adam(Adaptive):
    """FedAdam: v <- beta_2 v + (1 - beta_2) delta^2.

    Attributes:
        beta_2: Decay of the second moment, from 0 to below 1.
    """

    name: str = "adam"
    beta_2: Decay = 0.99

    def second_moment(self, before: np.ndarray, squared: np.ndarray) -> np.ndarray:
        after: np.ndarray = self.beta_2 * before + (1 - self.beta_2) * squared
        return after


class Yogi(Adaptive):
    """FedYogi: v <- v - (1 - beta_2) delta^2 sign(v - delta^2).

    Attributes:
        beta_2: Decay of the second moment, from 0 to below 1.
    """

    name: str = "yogi"
    beta_2: Decay = 0.99

    def second_moment(self, before: np.ndarray, squared: np.ndarray) -> np.ndarray:
        after: np.ndarray = before - (1 - self.beta_2) * squared * np.sign(before - squared)
        return after


ServerOptimizerField: Any = Choice(server_optimizers, ServerOptimizer, default="sgd").field

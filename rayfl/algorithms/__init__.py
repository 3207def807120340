"""One file per federated algorithm, which reads like its paper."""

from rayfl.registry import Registry

algorithms = Registry("algorithm", {"fedavg": "rayfl.algorithms.fedavg:FedAvg"})

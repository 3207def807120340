"""One file per federated algorithm, which reads like its paper."""

from rayfl.registry import Registry

algorithms = Registry(
    "algorithm",
    {
        "fedavg": "rayfl.algorithms.fedavg:FedAvg",
        "fedavgm": "rayfl.algorithms.fedopt:FedAvgM",
        "fedadagrad": "rayfl.algorithms.fedopt:FedAdagrad",
        "fedadam": "rayfl.algorithms.fedopt:FedAdam",
        "fedyogi": "rayfl.algorithms.fedopt:FedYogi",
        "fedprox": "rayfl.algorithms.fedprox:FedProx",
        "scaffold": "rayfl.algorithms.scaffold:SCAFFOLD",
        "moon": "rayfl.algorithms.moon:MOON",
        "feddyn": "rayfl.algorithms.feddyn:FedDyn",
        "fedexp": "rayfl.algorithms.fedexp:FedExP",
        "feddecorr": "rayfl.algorithms.feddecorr:FedDecorr",
        "fednova": "rayfl.algorithms.fednova:FedNova",
        "qfedavg": "rayfl.algorithms.qffl:QFedAvg",
        "qfedsgd": "rayfl.algorithms.qffl:QFedSGD",
        "fedbabu": "rayfl.algorithms.fedbabu:FedBABU",
    },
)

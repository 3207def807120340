"""One file per federated algorithm, which reads like its paper; presets name well-known combinations of their parts."""

from rayfl.registry import Registry

algorithms = Registry(
    "algorithm",
    {
        "fedavg": "rayfl.algorithms.fedavg:FedAvg",
        "fedavgm": "rayfl.algorithms.fedavg:FedAvg",
        "fedadagrad": "rayfl.algorithms.fedavg:FedAvg",
        "fedadam": "rayfl.algorithms.fedavg:FedAvg",
        "fedyogi": "rayfl.algorithms.fedavg:FedAvg",
        "fedprox": "rayfl.algorithms.fedavg:FedAvg",
        "scaffold": "rayfl.algorithms.scaffold:SCAFFOLD",
        "moon": "rayfl.algorithms.fedavg:FedAvg",
        "feddyn": "rayfl.algorithms.feddyn:FedDyn",
        "fedexp": "rayfl.algorithms.fedexp:FedExP",
        "feddecorr": "rayfl.algorithms.fedavg:FedAvg",
        "fednova": "rayfl.algorithms.fednova:FedNova",
        "qfedavg": "rayfl.algorithms.qffl:QFedAvg",
        "qfedsgd": "rayfl.algorithms.qffl:QFedSGD",
        "coprefl": "rayfl.algorithms.coprefl:CoPreFL",
        "fedbabu": "rayfl.algorithms.fedbabu:FedBABU",
        "ditto": "rayfl.algorithms.ditto:Ditto",
        "fedbn": "rayfl.algorithms.fedbn:FedBN",
        "fedmeta": "rayfl.algorithms.fedmeta:FedMeta",
        "perfedavg": "rayfl.algorithms.perfedavg:PerFedAvg",
    },
)

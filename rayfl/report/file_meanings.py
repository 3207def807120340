"""The files of a run's folder and what is in them; the documentation shows it."""

from __future__ import annotations

from collections.abc import Mapping

FILES: Mapping[str, str] = {
    "scenario.toml": "The scenario with every default written out and absolute paths, so that it can be run again.",
    "status.json": "How the run is doing or how it ended, why, and of which round its model is.",
    "metrics.jsonl": "A line for each evaluated round.",
    "clients.parquet": "Scores of single clients and what they reported, where a scenario asks for either.",
    "privacy.json": "Of runs with `local.dp` or `phases.N.dp`: the guarantee, and epsilon so far.",
    "model.safetensors": "The final model, or that of the last committed round, under PyTorch's names.",
    "environment.json": "Versions, devices, worker processes, digests of the data and of your code, and the seed.",
    "curves.png": "Learning curves with the phases marked.",
    "checkpoints/": "What a run resumes from.",
    "ledger.jsonl": "Of runs with `secure` noise: what each round may have released, written before it begins.",
    "ray.log": "Text of Ray's own, of runs on Ray.",
    "run.log": "What a submitted run printed.",
    "best.safetensors": "The model of the best evaluated round, with the callback `best_model`.",
    "models/": "Models of some rounds, with the callback `periodic_model`.",
    "tensorboard/": "Events for TensorBoard, with the callback `tensorboard`.",
    "analyses/": "What `rayfl analyse` found.",
}
"""By name, folders with a slash at the end."""

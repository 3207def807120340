"""The files in the folder of a run, as the documentation lists them."""

from __future__ import annotations

from collections.abc import Mapping

FILES: Mapping[str, str] = {
    "scenario.toml": "The scenario with every default and absolute paths; you can run it again.",
    "status.json": "Whether the run is running or how it ended, the reason, and the round of the saved model.",
    "metrics.jsonl": "A line for each evaluated round.",
    "clients.parquet": "Scores and reported scalars of single clients, if the scenario asks for either.",
    "privacy.json": "In runs with `local.dp` or `phases.N.dp`: the guarantee, and epsilon so far.",
    "model.safetensors": "The final model, or the model of the last committed round, under PyTorch's names.",
    "environment.json": "Versions, devices, worker processes, digests of the data and of your code, and the seed.",
    "curves.png": "Learning curves with the phases marked.",
    "report.html": "The page that `rayfl report` writes.",
    "checkpoints/": "Checkpoints to resume from.",
    "ledger.jsonl": "In runs with `secure` noise: everything that a round may release, written before it begins.",
    "ray.log": "Messages from Ray, in runs on Ray.",
    "run.log": "Printed output of a submitted run.",
    "best.safetensors": "The model of the best evaluated round, with the callback `best_model`.",
    "models/": "The model at the end of each phase but the last (`phase_1_cyclic.safetensors`), and models of "
    "some rounds, with the callback `periodic_model`.",
    "tensorboard/": "Events for TensorBoard, with the callback `tensorboard`.",
    "analyses/": "Results of `rayfl analyse`.",
}
"""Descriptions by name; folders end in a slash."""

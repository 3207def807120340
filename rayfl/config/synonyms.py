"""Names of scenario keys in other simulators and papers, for messages about unknown keys."""

from __future__ import annotations

_OTHER_NAMES = {
    "algorithm": "algo strategy method",
    "augment": "augmentation augmentations transform transforms",
    "backend": "engine",
    "batch_size": "batchsize bs local_batch_size train_batch_size minibatch_size",
    "beta": "alpha concentration",
    "clients": "num_clients n_clients number_of_clients client_num clients_num num_users",
    "clip_norm": "grad_clip gradient_clip clip_grad_norm grad_norm max_norm",
    "cohort": "clients_per_round num_clients_per_round client_fraction fraction frac participation participation_rate "
    "fraction_fit sample_rate cohort_size",
    "cpus_per_host": "num_cpus cpus",
    "data": "dataset data_set",
    "dp": "privacy differential_privacy dp_sgd",
    "epochs": "local_epochs num_epochs n_epochs epoch num_local_epochs local_ep",
    "every": "eval_every test_every eval_interval frequency frequency_of_the_test interval",
    "gpus_per_host": "num_gpus gpus",
    "hosts": "num_hosts num_workers workers num_actors",
    "lr": "learning_rate learningrate local_lr client_lr eta step_size",
    "lr_decay": "learning_rate_decay lr_gamma gamma decay_rate",
    "lr_schedule": "scheduler lr_scheduler learning_rate_schedule",
    "max_grad_norm": "clipping_norm l2_norm_clip clip max_gradient_norm",
    "metrics": "metric",
    "model": "network net architecture arch backbone",
    "noise_multiplier": "sigma noise noise_scale",
    "optimizer": "optimiser optim opt",
    "phases": "phase stages",
    "precision": "amp mixed_precision dtype",
    "rounds": "num_rounds n_rounds comm_rounds communication_rounds comm_round global_rounds total_rounds",
    "seed": "random_seed rng_seed",
    "start": "pretrained init initialization initialisation weights_from",
    "steps": "local_steps num_steps n_steps max_steps iterations local_iterations",
    "weight_decay": "wd l2 decay weightdecay",
}

MEANT = {other: key for key, others in _OTHER_NAMES.items() for other in others.split()}
"""The key for each of these names."""

"""Example-level DP (`local.dp`): DP-SGD, and an account for every client.

Before a run, `checks`, `network_checks` and `place_checks` reject what cannot be private. `planning` finds the noise
with `calibration`, for a `planned_account` of what clients will ask of their samples (`planned_updates`, `accesses`);
`notes` warns. During the run, `rayfl.engine.executors.private` trains with `poisson` batches and `per_sample`
gradients, and the scheduler keeps the accounts (`spending`) and budgets (`renyi_filter`) in
`rayfl.engine.privacy_budget`. For output and records, `accounting` computes epsilons by Opacus, for histories that no
other dominates, or by `rdp`, and `client_epsilons` those of all clients at once. `statement` describes the guarantee.
"""

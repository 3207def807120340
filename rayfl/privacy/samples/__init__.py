"""Privacy of single samples (`local.dp`): DP-SGD, and the account of every client.

Before a run: `checks`, `network_checks` and `place_checks` refuse what cannot be private; `planning` finds the noise,
for a `planned_account` of what clients will ask of their samples (`planned_updates`, `accesses`) and with
`calibration`; `notes` warns. During it:
`rayfl.engine.executors.private` trains with `poisson` batches and `per_sample` gradients, and the scheduler keeps the
accounts (`spending`) and budgets (`renyi_filter`) in `rayfl.engine.privacy_budget`. For output and records:
`accounting`, by Opacus for those that no other dominates, or by `rdp`; for all clients at once in `client_epsilons`.
`statement` words the guarantee.
"""

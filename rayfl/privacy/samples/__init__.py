"""Example-level DP (`local.dp`): DP-SGD, and an account for every client.

Before a run, its plan (`rayfl.engine.plan`) rejects what cannot be private, and finds the noise with `calibration` for
what clients will ask of their samples. During the run, `rayfl.engine.executors.private` trains with the `batches` and
`per_sample` gradients here and releases noised sums of them (`released_sums`), and the scheduler keeps the accounts and
budgets (`rdp`). For output and records, `accounting` computes epsilons by Opacus, for histories that no other
dominates, or by `rdp`, and those of all clients at once. `statement` describes the guarantee and warns.
"""

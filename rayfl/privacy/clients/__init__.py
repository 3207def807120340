"""Client-level DP (`phases.N.dp`): clipped and noised answers and sums, and one account for all clients.

Before a run, `checks` rejects what cannot be private, and `planning` finds each phase's mechanism, including its noise.
During the run, workers clip what clients send and, with `level = "local"`, add noise to it (`answers`); the server adds
noise to exact sums (`noised_sums`). The account needs no bookkeeping: `ledger` derives from the scenario what was
released, `accounting` and `without_replacement` compute epsilon from it, and `statement` describes the guarantee.
"""

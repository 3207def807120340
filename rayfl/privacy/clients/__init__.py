"""Privacy of whole clients (`phases.N.dp`): clipped and noised answers and sums, and one account for all clients.

Before a run: `checks` refuses what cannot be private; `planning` finds each phase's `mechanism`, noise included. During
it: hosts clip what clients send, and noise it if `level = "local"` (`answers`); the server noises exact sums
(`noised_sums`). The account needs no bookkeeping: `ledger` derives from the scenario what was released, `accounting`
and `without_replacement` make epsilon of that, and `statement` words the guarantee.
"""

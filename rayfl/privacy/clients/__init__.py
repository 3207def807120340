"""Client-level DP (`phases.N.dp`): clipped and noised answers and sums, and one account for all clients.

Before a run, its plan (`rayfl.engine.plan`) rejects what cannot be private and finds each phase's mechanism, including
its noise. During the run, workers clip what clients send and, with `level = "local"`, add noise to it; the server adds
noise to exact sums (`mechanism`). The account needs no bookkeeping: the scenario says what was released, and
`accounting` computes epsilon from it.
"""

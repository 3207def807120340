"""Plans a run: phases, rounds, cohorts, workloads and events, as plain data and random draws. Trains nothing."""

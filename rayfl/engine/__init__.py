"""Host, Server and Scheduler as plain classes, with exact sums, assignment, evaluation, snapshots and checks."""

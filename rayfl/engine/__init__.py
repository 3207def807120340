"""Host, Server and Scheduler as plain classes, and what they need: exact sums, cohorts, assignment, evaluation."""

"""What runs when and on what: phases, rounds, cohorts, workloads, events. Plain data and draws; nothing runs here."""

"""What a run will do, decided and checked before it starts: phases, cohorts, participation, messages, privacy."""

"""`rayfl scale`: what a run costs as clients, cohorts, workers, parameters, data and clients' states grow."""

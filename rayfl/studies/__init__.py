"""What is done with finished runs: grids of runs and their tables, figures and comparisons, analyses."""
